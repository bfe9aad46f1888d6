"""Hosts as a pool: one agent each, local or over SSH.

``target``   which host, and how it is reached
``package``  the agent as one file
``link``     one connection: frames, requests, streams
``bridge``   opens a link: a local process, or one at the far end of ``ssh``
``engine``   the contract over a link that comes back after it was cut
``onboard``  the first contact with a host, one named check after the other
"""
