"""`fedrl completion SHELL`: what a shell needs to complete commands, recipes and flags.

The scripts ask `fedrl completion words` for what may come next, so they never grow old: flags are
those that the command's own `--help` names, for `fedrl run RECIPE` every setting of the recipe.
"""

import contextlib
import io
import re
from collections.abc import Iterable

from fedrl.cli.parser import Parser
from fedrl.core.types import UserError

COMPLETION = """\
Print a script that completes fedrl's commands, recipes and flags in your shell.

  bash  echo 'eval "$(fedrl completion bash)"' >> ~/.bashrc
  zsh   echo 'eval "$(fedrl completion zsh)"' >> ~/.zshrc
  fish  fedrl completion fish > ~/.config/fish/completions/fedrl.fish"""
SCRIPTS = {
    "bash": """\
_fedrl() {
  local words
  words=$(fedrl completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _fedrl fedrl
""",
    "zsh": """\
_fedrl() {
  local -a found
  found=(${(f)"$(fedrl completion words -- "${words[@]:1:$((CURRENT - 1))}" 2>/dev/null)"})
  if (( ${#found} )); then compadd -a found; else _files; fi
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _fedrl fedrl
""",
    "fish": """\
function __fedrl
  set -l words (commandline -opc) (commandline -ct)
  fedrl completion words -- $words[2..-1] 2>/dev/null
end
complete -c fedrl -a "(__fedrl)"
""",
}


def completion(argv: list[str]) -> int:
    """The script of a shell, or the words that may come next."""
    if argv[:2] == ["words", "--"]:
        print("\n".join(candidates(argv[2:])))
        return 0
    parser = Parser("fedrl completion", description=COMPLETION)
    parser.add_argument("shell", choices=SCRIPTS, metavar="SHELL", help=", ".join(SCRIPTS))
    print(SCRIPTS[parser.parse_args(argv).shell], end="")
    return 0


def candidates(words: list[str]) -> list[str]:
    """What may stand in the place of the last word; nothing where it is the shell's to say."""
    from fedrl.cli import COMMANDS

    *before, typed = words or [""]
    found: Iterable[str] = ()
    if not before:
        found = COMMANDS
    elif before[0] not in COMMANDS:
        return []
    elif typed.startswith("-"):
        found = flags(before)
    elif len(before) == 1:
        found = first_words(before[0])
    return sorted(word for word in found if word.startswith(typed))


def first_words(command: str) -> Iterable[str]:
    """What a command is about."""
    from fedrl import api

    match command:
        case "run":
            return api.catalogue().recipes
        case "sweep":
            return api.catalogue().sweeps
        case "reproduce":
            from fedrl.api.papers import PAPERS

            return (*PAPERS, "index")
        case "data":
            return api.data_sets()
        case "flower":
            from fedrl.cli.flower import PARTS

            return PARTS
        case "new":
            return ("method", "world", "rule")
        case "play" | "warmstart" | "partition":
            return ("household", "webshop", "prompts")
        case "completion":
            return SCRIPTS
    return ()


def flags(before: list[str]) -> set[str]:
    """Those that its help names: of a recipe's run, all settings."""
    from fedrl.cli import find

    command, *rest = before
    subject = rest[:1] if rest and not rest[0].startswith("-") else []
    for asked in ([*subject, "--help"], ["--help"]):
        told = io.StringIO()
        with contextlib.suppress(SystemExit, UserError), contextlib.redirect_stdout(told):
            find(command)(asked)
        if found := re.findall(r"(?<![\w-])--[a-z][\w.-]*", told.getvalue()):
            return {word.rstrip(".-") for word in found}
    return set()
