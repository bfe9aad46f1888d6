"""An engine in memory that runs tiny scripts, keeps every promise, and fails on request.

``FakePool`` is the far side: nodes, allocations, time. ``FakeEngine`` is a connection to it with every power,
``PlainFakeEngine`` one with none. ``Faults`` is the network between them.
"""
