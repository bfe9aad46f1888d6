"""What is compared: the published method in its readings, what others do, fixed ratios, and the default."""

from dataclasses import dataclass

from lab.oversubscription.printed import (
    PAPER_STEP_CORES,
    as_printed,
    convolution,
    larger_of_sigma_and_percentiles,
)
from yunhe.flexible.overload.estimators import (
    Estimator,
    aligned,
    fixed_ratio,
    n_sigma,
    recent,
    sum_of_percentiles,
)
from yunhe.flexible.profiles.histogram import Binning
from yunhe.flexible.replay import Schedule

STATED = (0.005, 0.01, 0.02, 0.05)
MAIN = 0.01
DEFAULT = "flexible"


@dataclass(frozen=True, slots=True)
class Method:
    """An estimator and the stated probabilities it is run at; none where it knows no probability."""

    estimator: Estimator
    stated: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """Return the name used in tables and files."""
        return self.estimator.name


def methods(schedule: Schedule) -> tuple[Method, ...]:
    """Return every method but the default, over the published profile period of *schedule*."""

    def profile(estimator: Estimator) -> Estimator:
        if schedule.profile_s == schedule.memory_s:
            return estimator
        cut = recent(estimator, schedule.profile_s)
        return Estimator(estimator.name, cut.demand, cut.load)

    half = PAPER_STEP_CORES
    return (
        *(Method(fixed_ratio(ratio)) for ratio in (1, 1.5, 2, 3, 5)),
        Method(profile(as_printed()), (MAIN,)),
        Method(profile(convolution(Binning.ROUND, half)), (MAIN,)),
        Method(profile(convolution(Binning.CEIL, half)), (MAIN,)),
        Method(profile(convolution()), STATED),
        Method(profile(convolution(by_hour=True)), STATED),
        Method(profile(aligned()), STATED),
        Method(profile(sum_of_percentiles(0.95))),
        Method(profile(sum_of_percentiles(0.99))),
        Method(profile(n_sigma(3))),
        Method(profile(n_sigma(5))),
        Method(profile(larger_of_sigma_and_percentiles())),
    )
