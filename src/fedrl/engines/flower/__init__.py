"""Clients on other machines: the round loop's jobs travel by Flower's SuperLink and SuperNodes.

    fedrl run (the driver)  ⇄  SuperLink  ⇄  SuperNode  ⇄  fedrl flower node  ⇄  a worker process
    round loop, checkpoint     carries        carries       its folder            the algorithm

Flower carries messages between authenticated machines. It starts none of our code: the driver takes
the place of Flower's ServerApp process and `fedrl flower node` that of its ClientApp processes, by
the interface that Flower offers to executors of its own. So a node runs the fedrl that is installed
on it and never a program that came over the network, a model stays loaded between rounds, and a
round waits for the SuperNode to ask for messages and not for processes to start.

    driver      driver, engine, node_calls, client_nodes, superlink_client, secure_rounds
    node        supernode, node_executor, node, node_plan, node_recipes, client_state_store
      tells     node_check, own_check (before it joins), node_story (while it runs), status
      decides   policy, policy_check, setting_classes, approval, recipe_words
    SuperLink   superlink, superlink_guard, superlink_listener, driver_auth
    logs        audit_log: node_audit, coordinator_audit; audit_story reads and compares them
    all         messages (what is asked and answered), connection, address, keys, adapter/ (Flower's
                API)
"""
