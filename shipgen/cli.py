"""Commands: parse arguments, call, report. No logic lives here."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shipgen import __version__
from shipgen.diagnostics import FORMATS, Diagnostic, PolicyError, Severity, ShipgenError, UsageError, exit_code, report

if TYPE_CHECKING:
    from shipgen.pipeline.model import Pipeline
    from shipgen.policy import Policy
    from shipgen.targets.plan import Choice

Command = TypeVar("Command", bound=Callable[..., Any])


class Run:
    """What every command shares: how diagnostics are reported, and whether warnings fail."""

    def __init__(self, style: str, strict: bool) -> None:
        self.style = style
        self.strict = strict
        self.file = ""

    def load(self, policies: Sequence[str]) -> tuple[Policy, Pipeline, list[Diagnostic]]:
        """Load, resolve and check a policy, with its diagnostics so far."""
        from shipgen.pipeline import resolve
        from shipgen.pipeline.checks import check
        from shipgen.policy import load

        self.file = "<stdin>" if policies[0] == "-" else policies[0]
        policy = load(policies, sys.stdin)
        pipeline = resolve(policy)
        return policy, pipeline, [*policy.diagnostics, *check(pipeline, policy)]

    def say(self, diagnostics: Iterable[Diagnostic], *, product: bool = False, closing: str = "") -> int:
        """Report diagnostics (on stdout where they are the product) and give the exit code."""
        found = list(diagnostics)
        stream = sys.stdout if product else sys.stderr
        if product or found or self.style != "text":
            report(found, self.style, stream=stream, strict=self.strict, file=self.file, closing=closing,
                   summary=not closing and (product or bool(found)))
            stream.flush()
        return exit_code(found, self.strict)


def shared(command: Command) -> Command:
    """The options that every command has."""
    command = click.option("--strict", is_flag=True, help="Warnings fail, too.")(command)
    return click.option("--format", "style", type=click.Choice(FORMATS), default="text", show_default=True,
                        help="How diagnostics are written.")(command)


def a_file(*_: Any) -> list[Any]:
    """For shell completion: a file, as the shell completes it."""
    from click.shell_completion import CompletionItem

    return [CompletionItem("", type="file")]


def a_target(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """For shell completion: names of targets."""
    from shipgen.targets.base import NAMES

    return [name for name in (*NAMES, "all") if name.startswith(begun)]


def policies(command: Command) -> Command:
    """One or more policy files."""
    return click.argument("policies", nargs=-1, required=True, metavar="POLICY...", shell_complete=a_file)(command)


def targets(help_text: str) -> Callable[[Command], Command]:
    """`--target`, any number of times."""
    return click.option("--target", "-t", "wanted", multiple=True, metavar="TARGET", help=help_text,
                        shell_complete=a_target)


def out(text: str) -> None:
    """The product, as UTF-8 whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def err(text: str) -> None:
    """All else."""
    click.echo(text, err=True)


INTERRUPTED = 130
"""Exit code of a run that Ctrl-C ended, as shells have it; 1 would read as loss."""


class Group(click.Group):
    """Turns shipgen's errors into a report and an exit code, whichever command they come from."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except OSError as error:  # of what --help and --version print
            raise click.exceptions.Exit(self.lost(error)) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self.reported(ctx)
        except KeyboardInterrupt:
            err("interrupted")
            return ctx.exit(INTERRUPTED)
        except OSError as error:
            return ctx.exit(self.lost(error))

    @staticmethod
    def lost(error: OSError) -> int:
        """Give up a stream that takes no more: files that a command names are looked after where they are opened."""
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()
        else:
            sys.stdout = io.StringIO()  # so that Python does not try once more when it exits
            err(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
        return UsageError.exit_code

    def reported(self, ctx: click.Context) -> Any:
        """Run the command; report what it raises."""
        try:
            return super().invoke(ctx)
        except PolicyError as error:
            style, strict = ctx.meta.get("style", "text"), ctx.meta.get("strict", False)
            stream = sys.stdout if ctx.invoked_subcommand in ("validate", "check") else sys.stderr
            report(error.diagnostics, style, stream=stream, strict=strict)
            stream.flush()
            return ctx.exit(error.exit_code)
        except ShipgenError as error:
            err(f"error: {error}")
            return ctx.exit(error.exit_code)
        except RecursionError:
            err("error: the policy is nested too deeply")
            return ctx.exit(PolicyError.exit_code)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shipgen")
def main() -> None:
    """One policy file for a Ray cluster's logs, rendered for any log shipper.

    \b
    Start:    shipgen init > policy.yaml
    Check:    shipgen validate policy.yaml
    Render:   shipgen render policy.yaml --target vector -o rendered/
    Look:     shipgen preview policy.yaml /tmp/ray/session_latest/logs/raylet.out

    Exit codes: 0 clean; 1 the policy is wrong, or something drifted, was lost or is not shipped; 2 bad usage or an
    unreadable file; 3 something outside is missing, such as a shipper's binary.

    \b
    Completion, in ~/.bashrc (zsh and fish have a word of their own):
              eval "$(_SHIPGEN_COMPLETE=bash_source shipgen)"
    """


def run(style: str, strict: bool) -> Run:
    """The run of the current command."""
    context = click.get_current_context()
    context.meta["style"], context.meta["strict"] = style, strict
    return Run(style, strict)


@main.command()
@click.option("--for", "kind", type=click.Choice(["ray", "verl", "file"]), default="ray", show_default=True,
              help="What the policy is about.")
@shared
def init(kind: str, style: str, strict: bool) -> None:
    """Write a short commented policy that validates to stdout."""
    from shipgen.policy.starters import starter

    run(style, strict)
    out(starter(kind))


@main.command(short_help="Check a policy, and what each target can and cannot do.")
@policies
@targets("Judge the policy for this target as well; may be repeated. `all`: every target.")
@click.option("--native", is_flag=True,
              help="Also run each shipper's own checker, and start it where nothing is read or sent.")
@shared
def validate(policies: tuple[str, ...], wanted: tuple[str, ...], native: bool, style: str, strict: bool) -> None:
    """Check a policy: schema, semantics, what each target can and cannot do.

    Without --target the policy and the targets under `targets:` are judged; what other targets can't do is a note.
    """
    this = run(style, strict)
    policy, pipeline, found = this.load(policies)
    choices = _choose(wanted, policy, pipeline)
    found += [d for c in choices for d in c.diagnostics]
    if not wanted:
        from shipgen.targets import plan

        found += plan.of_others([c.name for c in choices], policy, pipeline)
    code = 0
    if native:
        from shipgen.harness.native import check_natively

        checked, code = check_natively(pipeline, [c for c in choices if c.renders])
        found += checked
    sys.exit(this.say(found, product=True) or code)


def _choose(wanted: Sequence[str], policy: Policy, pipeline: Pipeline) -> list[Choice]:
    from shipgen.targets import plan

    return [plan.choose(name, policy, pipeline) for name in plan.names(wanted, policy)]


def _choose_one(name: str, policy: Policy, pipeline: Pipeline) -> Choice:
    from shipgen.targets import plan

    return plan.choose(name, policy, pipeline)


def _chosen(wanted: Sequence[str], policy: Policy, pipeline: Pipeline, found: list[Diagnostic]) -> list[Choice]:
    """Targets to render. With `all`, those that can't are named and left out; else each one that can't is an error."""
    from shipgen.targets import plan

    choices = _choose(wanted, policy, pipeline)
    if not choices:
        raise UsageError("no target: give --target, or list targets in the policy")
    renders = [c for c in choices if c.renders]
    if "all" in wanted and renders:
        for choice in choices:
            if choice.renders:
                found += choice.diagnostics
            else:
                why = "; ".join(d.message for d in choice.diagnostics if d.severity is Severity.ERROR)
                err(f"{choice.name} is left out: {why}")
        for name in plan.not_rendered():
            err(f"{name} is left out: not rendered yet by this release")
        return renders
    found += [d for c in choices for d in c.diagnostics]
    return choices


@main.command()
@policies
@targets("Shipper to write for; may be repeated. `all`: every target that can express the policy.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Directory of the bundle. Without it: stdout.")
@click.option("--with", "extras", multiple=True, metavar="KIND[,KIND]",
              help="More files: systemd, ray-cluster-yaml, kuberay; alerts, dashboard, prometheus.")
@shared
def render(policies: tuple[str, ...], wanted: tuple[str, ...], output: Path | None, extras: tuple[str, ...], style: str,
           strict: bool) -> None:
    """Render a policy into configuration.

    Without -o the main config file goes to stdout. With -o the directory becomes exactly this run's bundle: files that
    an earlier run wrote and this one doesn't are deleted; files that shipgen did not write are never touched.
    """
    from shipgen.rendering import bundle as bundles

    this = run(style, strict)
    kinds = _kinds(extras)
    policy, pipeline, found = this.load(policies)
    choices = _chosen(wanted, policy, pipeline, found)
    if output is None and len(choices) != 1:
        raise UsageError("without -o one target is written to stdout; give exactly one --target, or -o DIR")
    if exit_code(found, strict):
        sys.exit(this.say(found))
    bundle = bundles.of(pipeline, choices, kinds)
    this.say(d for d in found if d.severity is not Severity.NOTE or style != "text")
    if output is not None:
        written = bundles.write(bundle, output)
        total = len(bundle.files) + 1
        err(f"{output}: {len(written)} of {total} files written" if written else f"{output}: up to date")
        return
    main_config = next(iter(bundle.mains.values()))
    out(bundle.files[main_config].decode())
    if companions := sorted(set(bundle.files) - {main_config}):
        err("companion files, written with -o DIR: " + ", ".join(companions))


def _kinds(extras: Sequence[str]) -> Sequence[str]:
    if not extras:
        return ()
    from shipgen.targets import deploy

    return deploy.kinds(extras)


@main.command()
@policies
@targets("Target to compare; left out: those that MANIFEST.json names.")
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="Directory of the bundle.")
@shared
def check(policies: tuple[str, ...], wanted: tuple[str, ...], output: Path, style: str, strict: bool) -> None:
    """Render again and compare with a directory. Writes nothing.

    Names every file that was edited, is missing, outdated or no longer rendered, with a diff that `git apply` takes,
    and ends with one line for the reviewer. Exit 1 where something differs, so that a pipeline notices when policy
    and committed files have come apart. Targets and deployment files are those that its MANIFEST.json names.
    """
    import shlex

    from shipgen.rendering import bundle as bundles
    from shipgen.rendering import drift

    this = run(style, strict)
    policy, pipeline, found = this.load(policies)
    manifest = bundles.read_manifest(output)
    if not wanted:
        if manifest is None:
            raise UsageError(f"{output}: no {bundles.MANIFEST}; name the targets with --target")
        wanted = tuple(manifest["targets"])
    kinds = manifest.get("with", ()) if manifest else ()
    choices = _chosen(wanted, policy, pipeline, found)
    if code := exit_code(found, False):
        sys.exit(this.say(found, product=True) or code)
    bundle = bundles.of(pipeline, choices, kinds)
    drifts = list(drift.compare(bundle, output))
    asked = [argument for name in wanted for argument in ("--target", name)]
    asked += ["--with", ",".join(kinds)] if kinds else []
    command = shlex.join(["shipgen", "render", *policies, *asked, "-o", str(output)])
    found = [d for d in found if d.severity is not Severity.NOTE]  # `validate` has those
    found += [d.diagnostic(output, command) for d in drifts]
    sys.exit(this.say(found, product=True, closing=drift.summary(drifts, bundle, output)))


@main.command(short_help="Say what a change of policy does, and show the files' diff.")
@click.argument("old", metavar="OLD", shell_complete=a_file)
@click.argument("new", metavar="NEW", shell_complete=a_file)
@targets("Target whose files are compared; left out: those of each policy.")
@click.option("--exit-code", "fails", is_flag=True, help="Exit 1 where anything differs, as git does.")
@click.option("--no-text", is_flag=True, help="Leave out the text of the files; say in words what changes.")
@shared
def diff(
    old: str, new: str, wanted: tuple[str, ...], fails: bool, no_text: bool, style: str, strict: bool
) -> None:
    """Say what a change of policy does: records, streams, offsets, Ray's environment; then the diff of the files.

    OLD and NEW are policy files; `base.yaml+prod.yaml` is one with another merged over it, and `-` is stdin:

    \b
        git show main:policy.yaml | shipgen diff - policy.yaml

    With --strict a change that keeps records away, makes new streams or reads files again exits 1.
    """
    from shipgen.rendering.review import as_json, as_text, review
    from shipgen.targets.changes import Side

    this = run(style, strict)
    files = [_overlays(name) for name in (old, new)]
    if all("-" in names for names in files):
        raise UsageError("standard input can be read only once")
    sides = []
    for names in files:
        policy, pipeline, found = this.load(names)
        choices = _choose(wanted, policy, pipeline)
        sides.append(Side(policy, pipeline, tuple(choices)))
    found += [d for c in choices for d in c.diagnostics]
    it = review(*sides)
    code = exit_code([*found, *it.diagnostics()], strict)
    if style == "json":
        out(as_json(it, found))
    elif style == "text":
        this.say(d for d in found if d.severity is Severity.ERROR)
        out(as_text(it, diff=not no_text))
    else:
        this.say([*it.diagnostics(), *found], product=True, closing=it.summary)
    sys.exit(code or int(fails and it.differs))


def _overlays(argument: str) -> list[str]:
    """The files of a policy: `base.yaml+prod.yaml` are two, unless a file is called so."""
    parts = argument.split("+")
    return [argument] if not all(parts) or Path(argument).exists() else parts


@main.command(short_help="Say for each file of a real tree who ships it.")
@policies
@click.option("--root", type=click.Path(path_type=Path), default=Path("/"), show_default=True,
              help="Where the node's file system is.")
@shared
def files(policies: tuple[str, ...], root: Path, style: str, strict: bool) -> None:
    """Say for each file of a real tree who ships it: source and family, nobody, or two.

    Exit 1 on log files nobody ships: Ray's layout is not promised to stay as it is.
    """
    from shipgen.pipeline.inventory import inventory

    this = run(style, strict)
    _, pipeline, found = this.load(policies)
    rows, strays = inventory(pipeline, root)
    out("".join(f"{row}\n" for row in rows))
    sys.exit(this.say([*found, *strays]))


@main.command(short_help="Say in words what a policy does, and where it approximates.")
@policies
@targets("Target to explain; left out: those of the policy.")
@shared
def explain(policies: tuple[str, ...], wanted: tuple[str, ...], style: str, strict: bool) -> None:
    """Say in words what a policy does: what arrives where, what each target only approximates, what grows."""
    from shipgen.targets.explain import explain as in_words

    this = run(style, strict)
    policy, pipeline, found = this.load(policies)
    choices = _choose(wanted, policy, pipeline)
    this.say(found)
    out(in_words(policy, pipeline, choices))


@main.command(short_help="Show the records that come out of real log lines.")
@click.argument("arguments", nargs=-1, required=True, metavar="POLICY... FILE...", shell_complete=a_file)
@click.option("--as", "as_path", metavar="PATH", help="Path below logs/ that stdin (`-`) stands for, e.g. raylet.out.")
@click.option("--target", "-t", "target", metavar="TARGET", shell_complete=a_target,
              help="Run this shipper itself instead of Vector's VRL in-process.")
@shared
def preview(arguments: tuple[str, ...], as_path: str | None, target: str | None, style: str, strict: bool) -> None:
    """Show the records that come out of real log lines, one JSON object a line.

    Arguments that end in .yaml or .yml are policies, the others are log files; `-` is a log on stdin.
    """
    from shipgen.rendering import preview as previews

    this = run(style, strict)
    names, logs = previews.split_arguments(arguments)
    policy, pipeline, found = this.load(names)
    code = this.say(d for d in found if d.severity is not Severity.NOTE)
    for line in previews.notes(pipeline, target):
        err(line)
    if target:
        from shipgen.harness.preview import run_shipper

        records = run_shipper(pipeline, _choose_one(target, policy, pipeline), logs, as_path, sys.stdin)
    else:
        records = previews.preview(pipeline, logs, as_path, sys.stdin)
    for record in records:
        out(record + "\n")
    sys.exit(code)


@main.command(short_help="Prove it end to end, with a real Loki and a real shipper.")
@policies
@click.option("--target", "-t", "target", required=True, metavar="TARGET", help="Shipper to run.",
              shell_complete=a_target)
@click.option("--logs", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="A Ray log tree to replay. Left out: a small recorded one.")
@click.option("--runner", "kind", type=click.Choice(["docker", "local"]),
              help="Left out: local where the binary is on PATH.")
@click.option("--image", default="", metavar="IMAGE", help="Container image of the shipper instead of the pinned one.")
@click.option("--pull", type=click.Choice(["never", "missing"]), default="missing", show_default=True,
              help="Whether images may be pulled.")
@click.option("--scenario", default="", metavar="NAME",
              help="What happens to the files: static (a recorded tree, the default), steady (the default with"
              " --fault), live, rotation, session, moved, many-files, long-lines.")
@click.option("--fault", "fault_names", multiple=True, metavar="NAME[:TIME]",
              help="What goes wrong meanwhile, such as loki-down:2m; may be repeated. One that is none lists all.")
@click.option("--live-ray", is_flag=True, help="Ship the logs of a real Ray that runs a small program; takes the extra"
              " `ray`.")
@click.option("--report", "report_names", multiple=True, metavar="FORMAT|FILE",
              help="text (the default), json or junit; or a file, also .html with plots. May be repeated.")
@shared
def verify(policies: tuple[str, ...], target: str, logs: Path | None, kind: str | None, image: str, pull: str,
           scenario: str, fault_names: tuple[str, ...], live_ray: bool, report_names: tuple[str, ...], style: str,
           strict: bool) -> None:
    """Prove it end to end: start Loki and the shipper, replay a Ray log tree, read Loki back, compare.

    Exit 1 where a record was lost, changed, or discarded by Loki, or, without a fault, repeated; 3 where Loki or the
    shipper is missing.
    """
    from dataclasses import replace

    from shipgen.harness import defaults
    from shipgen.harness import report as reports
    from shipgen.harness.verify import verify as run_it
    from shipgen.rendering import bundle as bundles

    this = run(style, strict)
    faults = defaults.faults(fault_names)
    played = defaults.scenario(scenario, logs, bool(faults), live_ray)
    styles = [reports.style_of(name) for name in report_names or ("text",)]
    policy, pipeline, found = this.load(policies)
    if pipeline.hop is not None:
        err("topology is left out: the records go to Loki without Kafka in between")
        pipeline = replace(pipeline, hop=None)
    choice = _choose_one(target, policy, pipeline)
    if this.say(d for d in [*found, *choice.diagnostics] if d.severity is not Severity.NOTE):
        sys.exit(PolicyError.exit_code)
    assert choice.target is not None
    result = run_it(
        pipeline, lambda changed: bundles.of(changed, [choice]).files, choice.target, choice.version,
        played, defaults.runner(kind, choice.target.binary, pull), err, image=image, faults=faults,
    )
    for name, path in styles:
        if path is None:
            out(reports.written(result, name))
        else:
            path.write_text(reports.written(result, name), "utf-8")
            err(f"{path}: written")
    sys.exit(0 if result.ok else PolicyError.exit_code)


@main.group()
def verl() -> None:
    """What VeRL's running engine workers can be told."""


@verl.command()
@click.argument("level")
@click.option("--expire", default="2h", show_default=True, metavar="DURATION", help="When the old level returns.")
@click.option("--controller", required=True, metavar="URL", help="The controller, such as http://controller:8080.")
@click.option("--node", metavar="NAME", help="Only the workers of this node.")
@click.option("--yes", is_flag=True, help="Send it. Without it the request is only shown.")
@shared
def level(level: str, expire: str, controller: str, node: str | None, yes: bool, style: str, strict: bool) -> None:
    """Change the level of running engine workers for a while: OFF, ERROR, WARN, INFO or DEBUG."""
    from shipgen.harness.controller import level_request

    run(style, strict)
    request = level_request(level, expire, controller, node)
    out(str(request))
    err(f"sent; the controller answered {request.send()}" if yes else "not sent: add --yes")


@main.command(short_help="Write the JSON Schema of the policy, for editors.")
@shared
def schema(style: str, strict: bool) -> None:
    """Write the JSON Schema of the policy language to stdout, for editors."""
    import json

    from shipgen.policy.schema import json_schema

    run(style, strict)
    out(json.dumps(json_schema(), indent=2) + "\n")


@main.command(name="targets", short_help="List targets, their versions, and what they can't do.")
@shared
def list_targets(style: str, strict: bool) -> None:
    """List targets, the versions that shipgen knows, and what they can't do exactly; with --format json as JSON."""
    from shipgen.targets import listing

    run(style, strict)
    out(listing.as_json() if style == "json" else listing.listing())
