"""What the comparison scripts of this folder share: running the program, tables, progress."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Failed(Exception):
    """A measurement that could not be made; the message is a sentence for the user."""


def main(body):
    """Runs `body`; a failure becomes one line and exit code 1, also a request to stop (which lets files be removed)."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        body()
    except Failed as e:
        progress_clear()
        sys.exit(f"error: {e}")
    except KeyboardInterrupt:
        progress_clear()
        sys.exit(130)


def program(given):
    """Path of the `lodestore` program: `given`, or what `make build` left."""
    if given:
        found = given
    else:
        answer = subprocess.run(
            ["cargo", "metadata", "--no-deps", "--format-version", "1"],
            cwd=REPOSITORY, capture_output=True, text=True, check=False,
        )
        if answer.returncode != 0:
            raise Failed("cargo does not say where it builds; name the program with --bin")
        found = os.path.join(json.loads(answer.stdout)["target_directory"], "release", "lodestore")
    if not os.access(found, os.X_OK):
        raise Failed(f"{found} is not a program; run `make build` first")
    return os.path.abspath(found)


def warn_if_busy():
    """Other programs share the processors and the disk with both sides, and not fairly."""
    load = os.getloadavg()[0]
    if load > os.cpu_count() / 2:
        print(f"warning: the load average is {load:.1f}; figures of a busy machine say little", file=sys.stderr)


def is_installed(command):
    """Whether there is such a program."""
    return shutil.which(command) is not None


def required(command):
    """Fails unless `command` is installed."""
    if not is_installed(command):
        raise Failed(f"{command} is not installed; `.ci/packages` installs it")


def run_measured(command):
    """Runs a command to its end; gives its standard output and its largest resident size in bytes."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said = out.read().decode()
        if process.returncode != 0:
            err.seek(0)
            words = err.read().decode(errors="replace").strip() or said.strip() or "it says nothing"
            raise Failed(f"`{' '.join(command)}` ended with {process.returncode}: {words}")
        return said, usage.ru_maxrss * 1024


def run_json_measured(command):
    """Runs a command that prints one JSON object; gives the object and the largest resident size in bytes."""
    said, resident = run_measured(command)
    try:
        return json.loads(said), resident
    except json.JSONDecodeError as e:
        raise Failed(f"`{' '.join(command)}` printed no JSON object: {e}") from e


def run_json(command):
    """Runs a command that prints one JSON object."""
    return run_json_measured(command)[0]


@contextmanager
def workplace(directory):
    """A temporary directory in `directory`, removed at the end whatever happens."""
    try:
        place = tempfile.mkdtemp(prefix="lodestore-measuring-", dir=directory)
    except OSError as e:
        raise Failed(f"{directory}: {e.strerror}") from e
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def spread(values):
    """Median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def show(s, form="{:.2f}"):
    """`median (min-max)`."""
    return f"{form.format(s['median'])} ({form.format(s['min'])}-{form.format(s['max'])})"


def table(head, rows):
    """Prints aligned columns, the first to the left, others to the right."""
    rows = [[str(c) for c in r] for r in [head, *rows]]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    for n, r in enumerate(rows):
        print("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip())
        if n == 0:
            print("  ".join("-" * w for w in widths))


def progress(text):
    """Says what is being done, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def progress_clear():
    """Removes the line of `progress`."""
    progress("")


def positive(text):
    """An argument that counts something."""
    n = int(text)
    if n < 1:
        raise ValueError
    return n
