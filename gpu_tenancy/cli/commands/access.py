"""Commands about access: who may do what, and kubeconfigs."""

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml
from rich.markup import escape
from rich.text import Text

from gpu_tenancy.base import quantity, terminal
from gpu_tenancy.base.answer import Output, answer
from gpu_tenancy.base.output import write_private
from gpu_tenancy.base.terminal import ProjectFolder
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.commands.options import asking
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.access import kubeconfigs, planned, rules
    from gpu_tenancy.access import live as live_access
    from gpu_tenancy.kube import client
    from gpu_tenancy.kube import contexts as kube_contexts
    from gpu_tenancy.model import project as projects
    from gpu_tenancy.model.spec import cluster as spec_cluster


_REVIEWS: Final = "ask as an administrator, or leave --live out; `kubectl auth can-i --list` shows your own rights"
_HIDDEN: Final = "of the control plane and of operators not shown (use --verbose)"
_TOKENS: Final = "ask somebody who may create serviceaccounts/token in that namespace"
_Team = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace of a team. Default: all teams.")]
_Live = Annotated[
    bool, typer.Option("--live", help="Ask the cluster. Exit code 3 if it differs from the stack for its people.")
]


def who_can(
    verb: Annotated[str, typer.Argument(help="Verb of RBAC, such as get, create, delete.")],
    resource: Annotated[str, typer.Argument(help="Resource as for kubectl: pods, po, jobs.batch, pods/exec.")],
    *,
    namespace: _Team = None,
    stack: options.StackOption = None,
    project: ProjectFolder = None,
    place: terminal.Place,
    live: _Live = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also the control plane and service accounts of operators.")
    ] = False,
    output: Output = None,
) -> None:
    """Show who may do something, by which role, and in which teams.

    By roles and bindings of the stack; with --live by those of the cluster, each confirmed by a SubjectAccessReview.
    Outside of a project, by the roles and bindings of the cluster that you may read, in the namespace of the context.
    Guards (admission policies) can refuse more.

    [dim]tenancy access who-can create pods/exec -n ml-research[/dim]
    """
    with terminal.errors(stack or ""):
        if not (stack or project or projects.in_project()):
            wanted = rules.resource_of(resource, None)
            _who_can_seen(rules.verb_of(verb), wanted, namespace, place, output, verbose=verbose)
            return
        access = planned.access_of(stack, namespace, project, place)
        access.namespaces(namespace)
        asked, wanted = rules.verb_of(verb), rules.resource_of(resource, access.stack)
        expected = found = rules.who_can(access.grants, asked, wanted, namespace)
        if live:
            with asking(place, rights=_REVIEWS) as cluster:
                found = live_access.who_can_live(cluster, asked, wanted, namespace)
            expected = access.comparable(expected)
        visible = [holder for holder in found if verbose or access.tenant(holder.subject)]
        where = f" in {namespace}" if namespace else ""
        table = planned.holders(visible, access.names) if visible else Text(f"nobody may {asked} {wanted}{where}")
        answer(output, planned.holders_data(visible, access.names), table)
        if hidden := len(found) - len(visible):
            terminal.err.print(f"{hidden} {_HIDDEN}", highlight=False)
        compared = (expected, access.of_stack(found))
        _compare(*(planned.holder_lines(one, access.names) for one in compared))


def _who_can_seen(
    verb: str,
    resource: "rules.Resource",
    namespace: str | None,
    place: terminal.Place,
    output: Output,
    *,
    verbose: bool,
) -> None:
    """Who may do something, by what the caller may read in the cluster."""
    with asking(place) as cluster:
        home = namespace or cluster.namespace
        read = live_access.seen(cluster, home)
    every = rules.who_can(read.grants, verb, resource, home or None)
    found = [holder for holder in every if verbose or live_access.is_tenant(holder, home)]
    where = f" in {home}" if home else ""
    table = planned.holders(found, {}) if found else Text(f"nobody may {verb} {resource}{where}, as far as you may see")
    answer(output, planned.holders_data(found, {}), table)
    hidden = len(every) - len(found)
    for note in (*([f"{hidden} {_HIDDEN}"] if hidden else []), *read.notes):
        terminal.err.print(escape(note), highlight=False)


def kubeconfig(
    team: Annotated[str, typer.Argument(help="Team; its namespace is set.")],
    *,
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="Member to act as: an IAM role is assumed, a user or group impersonated, and"
            " serviceaccount:NAMESPACE/NAME gets a token. With --embedded, a user or group gets a certificate.",
        ),
    ] = None,
    valid: Annotated[str, typer.Option("--for", help="Validity of a token or certificate, 10m to 24h.")] = "1h",
    out: Annotated[Path | None, typer.Option(help="File to write, with mode 0600. Default: standard output.")] = None,
    stack: options.StackOption = None,
    project: ProjectFolder = None,
    place: terminal.Place,
) -> None:
    """Write a kubeconfig for a team, without stored credentials.

    On EKS, GKE and AKS the cloud's own helper gets a token at each use. With --kubeconfig, or for a cluster with
    `cloud: existing`, the login of that kubeconfig is used; keys and tokens in it are not copied. On the embedded
    platform, --as tries a role: the kubeconfig has a certificate for it that expires.

    [dim]tenancy access kubeconfig ml-research --as research --embedded --out researcher.kubeconfig[/dim]
    """
    with terminal.errors(stack or ""):
        access = planned.access_of(stack, team, project, place)
        access.namespaces(team)
        who = planned.named(name, access.stack, access.names.values(), "--as") if name else None
        if who:
            kubeconfigs.check_member(access, team, who)
        note, seconds = "", quantity.seconds("--for", valid)
        if who and who.kind == "serviceaccount":
            with token_maker(access.stack.cluster, place, _TOKENS) as (cluster, plain):
                config = kubeconfigs.with_token(cluster, plain, who, seconds)
        elif helper := None if any(place) else kubeconfigs.helper_config(access.stack.cluster, who):
            config = kubeconfigs.as_person(helper, who)
        else:
            file, selected = kubeconfigs.source(access.stack.cluster, place)
            entry = kube_contexts.entry_of(file, selected)
            if place.embedded and who:
                config = kubeconfigs.with_certificate(kubeconfigs.plain(entry), who, seconds)
            else:
                config, note = kubeconfigs.of_context(entry, who)
        text = kubeconfigs.in_team(config, access.name, team)
        if out:
            kubeconfigs.write(out, text)
        else:
            sys.stdout.write(text)
        if note:
            terminal.err.print(escape(note), highlight=False)


def worker_kubeconfig(
    worker: Annotated[str, typer.Argument(help="Stack of the worker, with `multikueue.manager`.")],
    *,
    valid: Annotated[str, typer.Option("--for", help="Validity of the token, 10m to 30d.")] = "7d",
    out: Annotated[Path | None, typer.Option(help="File for the kubeconfig, with mode 0600.")] = None,
    project: ProjectFolder = None,
    place: terminal.Place,
) -> None:
    """Print the Secret with the kubeconfig by which a MultiKueue manager reaches a worker; with --out, the kubeconfig.

    The Secret is the one that the manager's stack names. The kubeconfig has a token of the manager's service account in
    the worker's cluster. Repeat it before the token expires: Kueue reads the Secret again.

    [dim]tenancy access worker-kubeconfig train-west --context west | kubectl --context hub apply -f -[/dim]
    """
    with terminal.errors(worker):
        found, seconds = kubeconfigs.worker_of(worker, project), quantity.seconds("--for", valid)
        rights = "ask somebody who may create serviceaccounts/token in Kueue's namespace"
        with token_maker(found.stack.cluster, place, rights) as (cluster, plain):
            config = kubeconfigs.worker_config(cluster, plain, found, seconds)
        if out:
            write_private(out, yaml.safe_dump(config, sort_keys=False))
        else:
            sys.stdout.write(yaml.safe_dump(kubeconfigs.secret(found, config), sort_keys=False))
        expiry = kubeconfigs.expiry(config)
        terminal.err.print(f"for stack {found.manager}, valid until {expiry}", highlight=False, markup=False)


@contextmanager
def token_maker(
    section: "spec_cluster.Cluster", place: terminal.Place, rights: str
) -> Generator[tuple["client.Cluster", dict[str, Any]]]:
    """A connection to a stack's cluster for whoever makes tokens there, and a kubeconfig of it without a login.

    Without a place, the login of the cluster's cloud is used. `rights` is the fix for a missing right to make tokens.
    """
    config = kubeconfigs.helper_config(section) if not any(place) else None
    if config is None:
        file, selected = kubeconfigs.source(section, place)
        entry = kube_contexts.entry_of(file, selected)
        with asking(terminal.Place(file, entry.name), rights=rights) as cluster:
            yield cluster, kubeconfigs.plain(entry)
    else:
        with kubeconfigs.connected(config) as file, asking(terminal.Place(file), rights=rights) as cluster:
            yield cluster, config


def _compare(expected: Iterable[str], live: Iterable[str]) -> None:
    """Reports what the cluster allows and the stack does not, and the reverse. Raises Exit if they differ."""
    stack_only, live_only = sorted({*expected} - {*live}), sorted({*live} - {*expected})
    for line in stack_only:
        terminal.error_line(f"{line}: allowed by the stack, not by the cluster; deploy the stack")
    fix = "remove the binding, or add it to the stack"
    for line in live_only:
        terminal.error_line(f"{line}: allowed by the cluster, not by the stack; {fix}")
    if stack_only or live_only:
        raise typer.Exit(terminal.ExitCode.BLOCKED)
