"""Kinds of jobs and their roles: what a stack can say, what it becomes in the plan, and what is refused."""

from builders import GPU, Data, job, planned, pool, stack, team

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan
from gpu_tenancy.model.spec.roles import SSHD


def sections(**of_team: object) -> Data:
    gpus = {"h100": {"guaranteed": 8, "limit": 32}}
    return stack(pools={"h100": pool(nodes=4)}, teams={"a": team(gpus=gpus, **of_team)})


def with_job(**fields: object) -> Data:
    return sections(training={"j": job(**fields)})


def planned_job(**fields: object) -> JobPlan:
    (found,) = planned(with_job(**fields)).teams[0].jobs
    return found


def roles_of(**fields: object) -> dict[str, RolePlan]:
    return {role.name: role for role in planned_job(**fields).roles}


def test_a_launcher_has_no_gpus_and_the_nodes_of_its_workers() -> None:
    roles = roles_of(framework="mpi", workers=3, gpus=4, command=["mpirun", "/train"])
    assert [(name, role.pods, role.pod.gpus) for name, role in roles.items()] == [("launcher", 1, 0), ("worker", 3, 4)]
    launcher, worker = (role.pod for role in roles.values())
    assert launcher.node_labels == worker.node_labels
    assert (launcher.command, worker.command) == (("mpirun", "/train"), SSHD)


def test_a_role_inherits_from_its_job() -> None:
    role = {"gpus": 0, "cpu": "500m", "memory": "1Gi", "image": "registry.example.com/driver:2", "env": {"B": "2"}}
    roles = roles_of(framework="jobset", gpus=2, env={"A": "1"}, args=["--all"], roles={"driver": role, "worker": {}})
    driver, worker = (role.pod for role in roles.values())
    assert driver.amounts == {CPU: 500, MEMORY: 2**30}
    assert (driver.image, driver.args, driver.env) == (role["image"], ("--all",), {"A": "1", "B": "2"})
    assert (worker.env, worker.amounts[GPU]) == ({"A": "1"}, 2)


def test_the_arguments_of_a_job_are_not_those_of_a_roles_own_command() -> None:
    roles = roles_of(framework="jobset", args=["--all"], roles={"driver": {"command": ["/driver"]}})
    assert roles["driver"].pod.args == ()


def test_the_cpus_of_a_job_are_not_those_of_a_role_with_other_gpus() -> None:
    roles = roles_of(framework="jobset", gpus=8, cpu=100, memory="512Gi", roles={"small": {"gpus": 1}, "worker": {}})
    assert roles["worker"].pod.amounts[CPU] == 100_000
    assert roles["small"].pod.amounts[CPU] < 100_000


def test_gpu_pods_of_one_role_do_not_work_together_with_a_launcher() -> None:
    """One worker has nobody to exchange data with, so it needs no network between GPUs."""
    assert roles_of(framework="mpi", gpus=8)["worker"].pod.fabric is None


def test_a_head_has_no_gpus_and_its_command_is_that_of_the_ray_job() -> None:
    made = planned_job(framework="ray", gpus=4, workers=2, command=["python", "/tune.py"], args=["--all"])
    assert [(role.name, role.pods, role.pod.gpus) for role in made.roles] == [("head", 1, 0), ("worker", 2, 4)]
    assert made.entrypoint == ("python", "/tune.py", "--all")
    assert [(role.pod.command, role.pod.args) for role in made.roles] == [((), ()), ((), ())]


def test_further_roles_of_a_ray_job_are_groups_of_workers() -> None:
    own = {"head": {"gpus": 1}, "actor": {"pods": 2, "command": ["/warm"]}, "env": {"gpus": 0}}
    roles = roles_of(framework="ray", gpus=2, command=["/run"], roles=own)
    assert [(name, role.pods, role.pod.gpus) for name, role in roles.items()] == [
        ("head", 1, 1),
        ("actor", 2, 2),
        ("env", 1, 0),
    ]
    assert (roles["actor"].pod.command, roles["env"].pod.command) == (("/warm",), ())


def test_a_leader_is_as_its_workers_and_each_group_has_one() -> None:
    made = planned_job(framework="leader-worker", gpus=4, workers=3, groups=2)
    assert [(role.name, role.pods, role.pod.gpus) for role in made.roles] == [("leader", 1, 4), ("worker", 3, 4)]
    assert (made.groups, made.entrypoint) == (2, ())


def test_a_gang_can_have_roles_of_different_size() -> None:
    gang = job(scheduler="volcano", gpus=4, roles={"driver": {"gpus": 0}, "worker": {"pods": 2}}, flavor="h100")
    of_team = {"gpus": {}, "gangs": {"h100": {"guaranteed": 8}}, "training": {"g": gang}}
    (made,) = planned(stack(teams={"a": team(**of_team)})).teams[0].gangs
    assert [(role.name, role.pods, role.pod.gpus) for role in made.roles] == [("driver", 1, 0), ("worker", 2, 4)]
