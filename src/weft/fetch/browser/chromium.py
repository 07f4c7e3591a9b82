"""One Chromium process tree: found, started behind the guard proxy, measured, and ended with all that it has started.

It ends by itself when the pipe to it is closed, by the kernel when the browser process dies, and by SIGKILL to each
process of its tree otherwise. Its sandbox is on: root starts it under a user id that owns nothing else.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from weft.errors import BadInput, Missing

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
PROGRAM_VARIABLE = "CHROMIUM_PATH"
HELP = (
    "install it (Debian: `apt-get install chromium`; elsewhere: `python -m playwright install chromium`), or name it "
    f"in {PROGRAM_VARIABLE}"
)
NOBODY = 65534
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--dns-prefetch-disable",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--mute-audio",
    "--hide-scrollbars",
    "--password-store=basic",
    "--use-mock-keychain",
    "--force-color-profile=srgb",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-features=Translate,OptimizationHints,MediaRouter,InterestFeedContentSuggestions,AutofillServerCommunication,"
    "CertificateTransparencyComponentUpdater,DialMediaRouteProvider,SpeculationRulesPrefetchProxy,Prerender2",
    # The browser can resolve no name but the proxy's address: a connection that bypasses it fails.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--js-flags=--max-old-space-size=1024",
)


def find_chromium() -> str | None:
    """The program: the one named in the environment, one on PATH, or Playwright's own."""
    named = os.environ.get(PROGRAM_VARIABLE)
    if named:
        return named if os.access(named, os.X_OK) else None
    on_path = next((path for name in NAMES if (path := shutil.which(name))), None)
    return on_path or next(map(str, sorted(_playwrights(), reverse=True)), None)


def chromium_path() -> str:
    """The program; Missing if there is none, BadInput if the named one is invalid."""
    path = find_chromium()
    if path is None:
        if named := os.environ.get(PROGRAM_VARIABLE):
            raise BadInput(f"{PROGRAM_VARIABLE}: {named} is no program")
        raise Missing("a browser, which rendering needs,", HELP)
    return path


def sandbox_trouble() -> str:
    """Why the kernel gives an unprivileged browser no sandbox; empty if it does."""
    for name, least in (("user/max_user_namespaces", 1), ("kernel/unprivileged_userns_clone", 1)):
        try:
            if int(Path("/proc/sys", name).read_text()) < least:
                return f"no user namespaces: {name.replace('/', '.')} is 0"
        except (OSError, ValueError):
            continue  # the second is Debian's alone; without the first, the browser reports the error itself
    return ""


class ChromiumTree:
    """A started Chromium."""

    def __init__(self, executable: str, profile: Path, proxy_port: int, *, sandbox: bool, user_agent: str = "") -> None:
        """`profile`: an existing folder for this browser only."""
        self.profile = profile
        profile.mkdir(mode=0o700, parents=True)
        to_browser, writes = os.pipe()
        reads, from_browser = os.pipe()
        self.reads, self.writes = reads, writes
        home = str(profile)
        is_root = os.geteuid() == 0
        if is_root:
            os.chown(profile, NOBODY, NOBODY)
            _let_through(profile.parent)
        argv = [
            executable,
            *_FLAGS,
            f"--user-data-dir={home}",
            f"--proxy-server=http://127.0.0.1:{proxy_port}",
            "--proxy-bypass-list=<-loopback>",
            *([] if sandbox else ["--no-sandbox"]),
            *([f"--user-agent={user_agent}"] if user_agent else []),
            "about:blank",
        ]
        self.errors = (profile.parent / f"{profile.name}.log").open("w+b")
        parent = os.getpid()

        def prepare() -> None:
            # The ends of the pipes may be 3 and 4 already, in either order: move them to higher numbers first.
            high = os.dup(to_browser), os.dup(from_browser)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        environment = {
            "PATH": os.environ.get("PATH", ""),
            "LANG": "C.UTF-8",
            "HOME": home,
            "TMPDIR": home,
            "XDG_CONFIG_HOME": home,
            "XDG_CACHE_HOME": home,
        }
        library_path = os.environ.get("LD_LIBRARY_PATH")
        if library_path:
            environment["LD_LIBRARY_PATH"] = library_path
        # 3 and 4 are made by `prepare`; nothing else is inherited. A session of its own: a Ctrl-C is not for it.
        self._process = subprocess.Popen(  # noqa: S603
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors, env=environment,
            pass_fds=(3, 4), start_new_session=True, preexec_fn=prepare, user=NOBODY if is_root else None,
            group=NOBODY if is_root else None, extra_groups=() if is_root else None,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)

    @property
    def pid(self) -> int:
        """The pid of its first process."""
        return int(self._process.pid)

    @property
    def has_ended(self) -> bool:
        """Whether the first process has ended; the others end with it."""
        return self._process.poll() is not None

    def memory_bytes(self) -> int:
        """The memory of the tree: its proportional share, if the kernel provides that."""
        return sum(map(_pss, self.pids()))

    def pids(self) -> list[int]:
        """The pids of its first process, and of all that it and its zygotes have started."""
        return _tree(self._process.pid)

    def why_it_failed(self) -> str:
        """The last line of its log that is an error."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").splitlines()
        telling = [line for line in lines if "FATAL" in line or "sandbox" in line.lower() or "cannot" in line]
        return (telling or lines or ["it said nothing"])[-1][-300:]

    def kill(self) -> None:
        """Ends all of it at once, and removes its profile."""
        pids = self.pids()
        for pid in (self._process.pid, *pids):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self.errors.close()
        shutil.rmtree(self.profile, ignore_errors=True)
        Path(f"{self.profile}.log").unlink(missing_ok=True)


def _let_through(folder: Path) -> None:
    """Gives an unprivileged browser access to its profile, and to nothing else in the folders above it."""
    folder.chmod(0o711)


def _playwrights() -> list[Path]:
    home = Path.home() / ".cache/ms-playwright" if os.environ.get("HOME") else None
    return list(home.glob("chromium-*/chrome-linux*/chrome")) if home is not None and home.is_dir() else []


def _tree(root: int) -> list[int]:
    """A process and its descendants, by one pass over /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                after = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(after[1]), []).append(int(entry.name))
    found, at = [root], 0
    while at < len(found):
        found += children.get(found[at], ())
        at += 1
    return found


def _pss(pid: int) -> int:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0
