"""Plans: where tasks would go now, what there is to choose from, and what planning together saves."""

from litestar import Router, post
from litestar.params import JSONBody

from yunhe.entrypoints.api.caller import TheCaller
from yunhe.entrypoints.wire import Batch, Jobs, Manifests
from yunhe.scheduling.decision.model import Plan, Waiting
from yunhe.scheduling.decision.plans import JointPlan, ParetoPlan
from yunhe.trading.accounts.model import Action
from yunhe.trading.applications.model import SavedPlan, Submission


@post("/plan", status_code=200)
async def plan(data: JSONBody[Submission], caller: TheCaller) -> Plan:
    """Say where a task would go now and why; nothing is promised or kept."""
    await caller.authorize(Action.SEE, data.project_id, data.task.name)
    return await caller.platform.applications.plan(data.project_id, data.task)


@post("/plan/pareto", status_code=200)
async def pareto(data: JSONBody[Submission], caller: TheCaller) -> ParetoPlan | Waiting:
    """List the pools that no other beats in every respect for a task, and what each costs in the others' terms."""
    await caller.authorize(Action.SEE, data.project_id, data.task.name)
    return await caller.platform.applications.pareto(data.project_id, data.task)


@post("/plan/together", status_code=200)
async def together(data: JSONBody[Batch], caller: TheCaller) -> JointPlan:
    """Say where several tasks would go together now, and what that saves against one after another."""
    await caller.authorize_each(Action.SEE, data.submissions, "plan")
    return await caller.platform.applications.plan_together(data.submissions)


@post("/plan/save", status_code=200)
async def save(data: JSONBody[Batch], caller: TheCaller) -> SavedPlan:
    """Say where tasks would go together now, as a document to be run later; nothing is promised or kept."""
    await caller.authorize_each(Action.SEE, data.submissions, "plan")
    return await caller.platform.applications.save_plan(caller.who, data.submissions)


@post("/plan/run")
async def run(data: JSONBody[SavedPlan], caller: TheCaller) -> Jobs:
    """Run a saved plan as it is, once; ``stale-plan``: it does not hold any more, and the fields say what has changed."""
    await caller.authorize_each(Action.RUN, [task.submission for task in data.tasks], "run plan")
    return Jobs(await caller.platform.applications.run_plan(caller.who, data))


@post("/plan/render", status_code=200)
async def render(data: JSONBody[SavedPlan], caller: TheCaller) -> Manifests:
    """Write a saved plan as manifests which, applied unchanged to the chosen cluster, run it."""
    await caller.authorize_each(Action.RUN, [task.submission for task in data.tasks], "render plan")
    return Manifests(await caller.platform.applications.render_plan(caller.who, data))


router = Router("/", route_handlers=[plan, pareto, together, save, run, render], tags=["plans"])
