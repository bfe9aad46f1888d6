"""What runs at a Slurm site. Standard library only, Python 3.8 or newer; shipped as one file with the agent's modules.

``server``      answers the platform's verbs on standard input and output of the login node; it keeps nothing in memory
                that the site's directory does not hold, so any number may run, and each may be killed
``programs``    Slurm's own programs, each with a time limit; ``answers`` what they print, as values
``states``      what each of Slurm's job states means to us
``ledger``      allocations on the shared file system: claims, owners, marks, locks
``commands``    launch, stop, release, pause; ``submission`` an order in sbatch's words, ``sealing`` its secrets
``watch``       what came of it: the jobs' own records, and Slurm's word where a job could leave none
``job``         one job on its compute node, from first step to final record
``beside``      a command beside a running job; ``files`` archives in and out; ``usage`` minutes, numbered
``nodes``       partitions, nodes, sizes, quotas
"""
