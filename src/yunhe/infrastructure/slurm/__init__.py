"""A Slurm site as a pool: a login node, reached as any host is, and what the site's own scheduler runs.

``kind``     connects; ``onboard`` the first contact, one named check after the other
``engine``   the contract over the frames of the site's helper
``package``  the helper as one file
``site/``    the helper: standard library only; it works beside Slurm's own programs and inside each job
"""
