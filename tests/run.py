"""Run every check there is: ``python tests/run.py [arguments for pytest]``.

Installs what is missing, makes sure a Chromium is there, then runs ruff, pyright, import-linter and pytest with the
browser tests. Every step runs even after one has failed; the last line printed is pytest's own closing line.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.chromium import find_chromium  # noqa: E402

REQUIREMENTS = ("requirements.txt", "tests/requirements.txt")
PIP = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--root-user-action=ignore"]
INSTALL_LIMIT_S = 2400
BROWSER_LIMIT_S = 300
CHECK_LIMIT_S = 600
LINT_IMPORTS = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
COLOR = re.compile(r"\x1b\[[\d;]*m")
# "3 failed, 300 passed, 1 skipped in 12.34s (0:00:12)", with or without its frame.
CLOSING = re.compile(r"\b(no tests ran|\d+ (passed|failed|skipped|deselected|errors?|warnings?))\b.* in [\d.]+s\b")
CHECKS = {
    "ruff format": ["-m", "ruff", "format", "--check", "."],
    "ruff check": ["-m", "ruff", "check", "."],
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable],
    "import-linter": ["-c", LINT_IMPORTS, "--no-logo", "--no-cache"],
}


class Step(NamedTuple):
    """What one step came to."""

    name: str
    passed: bool
    words: str
    seconds: float

    @property
    def line(self) -> str:
        """The step as one line."""
        return f"{'ok' if self.passed else 'FAILED':<7} {self.name:<14} {self.seconds:6.1f} s  {self.words}"


def main(arguments: Sequence[str]) -> int:
    """Run the steps.

    Args:
        arguments: Handed on to pytest.

    Returns:
        0 when every step passed, 1 otherwise.
    """
    os.chdir(ROOT)
    move_into_venv(arguments)
    steps = [timed("packages", install_packages), timed("chromium", install_chromium)]
    steps += [timed(name, lambda command=command: check(command)) for name, command in CHECKS.items()]
    started = time.monotonic()
    code, closing = run_pytest(arguments)
    steps.append(Step("pytest", code == 0, f"exit status {code}", time.monotonic() - started))
    print("\n" + "\n".join(step.line for step in steps))
    print(closing, flush=True)
    return 0 if all(step.passed for step in steps) else 1


def timed(name: str, act: Callable[[], tuple[bool, str]]) -> Step:
    """Run one step and print its line."""
    started = time.monotonic()
    try:
        passed, words = act()
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        passed, words = False, str(problem)
    step = Step(name, passed, words, time.monotonic() - started)
    print(step.line, flush=True)
    return step


def move_into_venv(arguments: Sequence[str]) -> None:
    """Go on inside ``.venv`` where the system's Python refuses packages; return where it takes them.

    Debian marks its Python as managed by apt, and pip then installs nothing outside a virtual environment.
    """
    managed = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()
    if sys.prefix != sys.base_prefix or not managed or not any(map(missing_packages, REQUIREMENTS)):
        return
    folder = ROOT / ".venv"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    print(f"This Python takes no packages from pip; using the virtual environment {folder.name}.", flush=True)
    if not python.exists() and subprocess.run([sys.executable, "-m", "venv", str(folder)], check=False).returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        print("It could not be made (on Debian: apt-get install python3-venv); pip is told to install all the same.")
        os.environ["PIP_BREAK_SYSTEM_PACKAGES"] = "1"
        return
    sys.exit(subprocess.run([str(python), __file__, *arguments], check=False).returncode)


def missing_packages(file: str) -> list[str]:
    """Give the lines of a requirements file that are not installed in exactly that version."""
    missing = []
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        pin, _, marker = line.partition(";")
        name, _, version = pin.strip().partition("==")
        if not name or (marker and not applies(marker)):
            continue
        try:
            # A wheel for one kind of machine carries a local version, such as 2.13.0+cpu.
            installed = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            installed = None
        if installed != version:
            missing.append(pin.strip())
    return missing


def applies(marker: str) -> bool:
    """Tell whether an environment marker holds here; True without ``packaging``, so that pip is asked to decide."""
    if importlib.util.find_spec("packaging") is None:
        return True
    return importlib.import_module("packaging.markers").Marker(marker).evaluate()


def install_packages() -> tuple[bool, str]:
    """Install both requirement files when something in them is missing."""
    missing = [name for file in REQUIREMENTS for name in missing_packages(file)]
    if not missing:
        return True, "everything installed already"
    print(f"installing {', '.join(missing)}", flush=True)
    command = [*PIP, *(part for file in REQUIREMENTS for part in ("-r", file))]
    for attempt in range(2):
        if subprocess.run(command, stdin=subprocess.DEVNULL, timeout=INSTALL_LIMIT_S, check=False).returncode == 0:
            break
        if attempt == 0:
            print("pip failed; once more", flush=True)
            time.sleep(5)
    importlib.invalidate_caches()
    missing = [name for file in REQUIREMENTS for name in missing_packages(file)]
    if missing:
        return False, f"not installed: {', '.join(missing)}; a virtual environment helps: python -m venv .venv"
    return True, "installed"


def runs(browser: str) -> bool:
    """Tell whether a browser starts; Playwright's own lacks system libraries on a bare machine."""
    if platform.system() == "Windows":
        return True  # it would open a window instead of printing its version
    answer = subprocess.run([browser, "--version"], capture_output=True, timeout=60, check=False)
    return answer.returncode == 0


def install_chromium() -> tuple[bool, str]:
    """Find a Chromium that starts, or install one: Playwright's, else Debian's."""
    browser = find_chromium()
    if browser is None or not runs(browser):
        command = [sys.executable, "-m", "playwright", "install", "chromium"]
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, timeout=BROWSER_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            print(f"no browser from Playwright within {BROWSER_LIMIT_S} s", flush=True)
        browser = find_chromium()
    if browser is None or not runs(browser):
        apt_install("chromium")
        browser = find_chromium()
    if browser is None or not runs(browser):
        required = bool(os.environ.get("CI"))
        return not required, "none found" + ("" if required else "; the browser tests are skipped")
    if not has_chinese_font():
        apt_install("fonts-noto-cjk")
    fonts = "" if has_chinese_font() else "; no Chinese font found, so Chinese text may show as boxes"
    return True, browser + fonts


def has_chinese_font() -> bool:
    """Tell whether fontconfig knows a font for Chinese; True where there is no fontconfig to ask."""
    if shutil.which("fc-list") is None:
        return platform.system() != "Linux"
    return bool(subprocess.run(["fc-list", ":lang=zh"], capture_output=True, timeout=60, check=False).stdout.strip())


def apt_install(package: str) -> None:
    """Install a Debian package where this is Debian and we may; the caller looks whether it helped."""
    if shutil.which("apt-get") is None or getattr(os, "geteuid", lambda: 1)() != 0:
        return
    settings = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-q"], ["install", "-qy", "--no-install-recommends", package]):
        command = ["apt-get", *words]
        subprocess.run(command, env=settings, stdin=subprocess.DEVNULL, timeout=INSTALL_LIMIT_S, check=False)


def check(command: Sequence[str]) -> tuple[bool, str]:
    """Run one tool; its output is shown only when it complains."""
    settings = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    answer = subprocess.run(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env=settings,
        timeout=CHECK_LIMIT_S,
        check=False,
    )
    lines = answer.stdout.strip().splitlines()
    if answer.returncode != 0:
        print("\n".join(lines), flush=True)
    return answer.returncode == 0, lines[-1] if lines else ""


def run_pytest(arguments: Sequence[str]) -> tuple[int, str]:
    """Run pytest, showing its output as it comes except the closing line.

    Returns:
        Its exit status and the closing line, to be printed after everything else.
    """
    color = "yes" if sys.stdout.isatty() else "auto"
    command = [sys.executable, "-m", "pytest", f"--color={color}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8")
    closing = ""
    assert process.stdout is not None
    for line in process.stdout:
        if CLOSING.search(COLOR.sub("", line)):
            print(closing, end="", flush=True)
            closing = line
        else:
            print(line, end="", flush=True)
    return process.wait(), closing.strip() or "pytest gave no closing line"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
