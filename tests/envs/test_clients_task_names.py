"""Names of clients' tasks, beside worlds of one's own whose tasks are called alike."""

from __future__ import annotations

import pytest

from fedrl.algorithms.fedagent.held_out import check_apart, plain_names
from fedrl.core.types import UserError
from fedrl.envs.client_worlds import owned_id, owner_of
from fedrl.envs.text import Task


@pytest.mark.parametrize("name", ["client-7", "client-ann-1", "client-", "client-x:7", "row-1"])
def test_a_task_of_nobody_may_be_called_like_a_clients(name: str):
    assert owner_of(name) == (-1, name)
    assert owner_of(owned_id(12, name)) == (12, name)


@pytest.mark.parametrize("name", ["client-7", "client-3:7", "task"])
def test_a_task_that_is_trained_on_and_evaluated_is_found_whatever_it_is_called(name: str):
    """In a world of one's own, which has no clients of its own."""
    trained = plain_names(object(), [[name], ["other"]])  # type: ignore[arg-type]
    assert trained == {name, "other"}
    with pytest.raises(UserError, match="is both trained on and evaluated"):
        check_apart(object(), [Task(name, "kind")], trained, "")  # type: ignore[arg-type]
