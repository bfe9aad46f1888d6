"""What runs on a node: one daemon, one small wrapper per task. Standard library only, Python 3.8 or newer.

The package is shipped as one file (see ``yunhe.infrastructure.host.package``). Where to look:

``frames``       what travels between the platform and the agent, and ``shapes`` what each verb must carry
``bridge``       joins standard input and output to the daemon's socket, starting the daemon when it is absent
``daemon``       starts, recovers, ticks and replaces itself; ``server`` answers requests
``node``         the allocations and the commands on them; ``runs`` one allocation's directory and records
``spawner``      forks what runs as somebody else; ``wrapper`` one task from first step to exit record
``runtimes``     how tasks run, a folder for each way; ``table`` names them
``limits``       control groups; ``meters`` what was used; ``journal`` what must not be forgotten
"""

AGENT_VERSION = 8
"""Grows with every change of the agent's behaviour: a platform upgrades an agent with a lower one."""

PROTOCOL = 2
"""The newest form of frames this agent speaks; it also speaks every older one down to ``OLDEST_PROTOCOL``.

2: ``observe`` with ``changes`` tells only what changed.
"""

OLDEST_PROTOCOL = 1
