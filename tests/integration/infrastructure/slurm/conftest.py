"""One cluster for every test of this folder."""

from collections.abc import Generator

import pytest

from engines.slurm.cluster import SlurmCluster, slurm_cluster


@pytest.fixture(scope="session")
def cluster() -> Generator[SlurmCluster]:
    with slurm_cluster() as cluster:
        yield cluster
