"""Real programs, each of which can use TCP or something else within a host: a UNIX socket, or shared memory."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PYTHON = "/usr/bin/python3"
PEER = str(Path(__file__).resolve().parent / "peer.py")
LONG = 3600
# Debian keeps PostgreSQL's server out of the PATH.
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], "/usr/sbin", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))])


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def lacks_module(module):
    found = subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode == 0
    return None if found else f"needs the Python module {module}"


class Program:
    """A server that listens at a port and at a path, and a load that asks it at one of them (`tcp` or `unix`).

    One request of the load is one exchange of the observed processes.
    """

    name = ""
    needs = ()
    # Whether the load is an end of the channel that changes.
    records_load = True
    # What the other way is, as `crossway advise --instead` names it.
    instead = "uds-stream"
    # What precedes the commands of the servers and of the load: who they run as, and by what.
    user, prefix = (), ()
    # The CPU of the load and that of the servers; `None`: where the kernel lets them run.
    cpus = None

    def __init__(self, folder):
        self.folder, self.port, self.path = Path(folder), free_port(), f"{folder}/socket"
        self.processes = []

    @classmethod
    def missing(cls):
        gone = [program for program in cls.needs if not shutil.which(program)]
        return f"needs {', '.join(gone)}" if gone else None

    def address(self, way):
        return self.path if way == "unix" else str(self.port)

    def pinned(self, server):
        """What precedes the command of a server or of the load, so that it runs on its CPU."""
        return ["taskset", "-c", str(self.cpus[server])] if self.cpus else []

    def loaded(self, way, seconds):
        """The command that asks for so long, on its CPU."""
        return [*self.pinned(0), *self.user, *self.prefix, *self.load(way, seconds)]

    def run(self, *argv, server=1):
        command = [*self.pinned(server), *self.user, *self.prefix, *argv]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.processes.append(process)
        return process

    def start(self, way):
        """Starts the server and waits until it answers."""
        raise NotImplementedError

    def observed(self):
        """The numbers of the server's processes."""
        return [process.pid for process in self.processes]

    def load(self, way, seconds):
        """The command that asks for so long."""
        raise NotImplementedError

    def rate(self, output):
        """Requests per second, from the output of the load."""
        return float(output.split()[-1])

    def wait_for(self, way):
        for _ in range(200):
            try:
                with socket.socket(socket.AF_UNIX if way == "unix" else socket.AF_INET) as sock:
                    sock.connect(self.path if way == "unix" else ("127.0.0.1", self.port))
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not listen at {self.address(way)}")

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = []


class Redis(Program):
    name, clients = "redis, GET of 64 B, 1 client", 1
    needs = ("redis-server", "redis-benchmark")

    def start(self, way):
        self.run("redis-server", "--port", str(self.port), "--unixsocket", self.path, "--save", "", "--dir", str(self.folder))
        self.wait_for(way)

    def load(self, way, seconds):
        where = ["-s", self.path] if way == "unix" else ["-p", str(self.port)]
        return ["redis-benchmark", *where, "-c", str(self.clients), "-n", str(int(seconds * 30_000)), "-t", "get", "-d", "64", "--csv"]

    def rate(self, output):
        return float(re.search(r'^"GET","([0-9.]+)"', output, re.M).group(1))


class RedisMany(Redis):
    name, clients = "redis, GET of 64 B, 50 clients", 50


class Memcached(Program):
    name, needs = "memcached, get of 100 B", ("memcached",)

    def start(self, way):
        where = ["-s", self.path] if way == "unix" else ["-p", str(self.port), "-l", "127.0.0.1"]
        self.run("memcached", "-u", "root", "-t", "1", *where)
        self.wait_for(way)

    def load(self, way, seconds):
        return [PYTHON, PEER, "memcached", "ask", self.address(way), str(seconds)]


class Postgres(Program):
    name, needs = "PostgreSQL, pgbench -S, 1 client", ("postgres", "initdb", "pgbench", "setpriv")
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def start(self, way):
        data = self.folder / "data"
        # PostgreSQL makes the name of the socket from its folder and the port.
        self.path = f"{self.folder}/.s.PGSQL.{self.port}"
        if not data.exists():
            shutil.chown(self.folder, "postgres")
            subprocess.run([*self.user, "initdb", "-A", "trust", "-N", "-D", str(data)], check=True, capture_output=True)
        self.run("postgres", "-D", str(data), "-p", str(self.port), "-k", str(self.folder), "-h", "127.0.0.1")
        self.wait_for(way)
        where = ["-h", str(self.folder), "-p", str(self.port), "-U", "postgres"]
        for _ in range(100):
            made = subprocess.run(["pgbench", "-i", "-q", *where, "postgres"], capture_output=True)
            if made.returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError(made.stderr.decode())

    def load(self, way, seconds):
        host = str(self.folder) if way == "unix" else "127.0.0.1"
        where = ["-h", host, "-p", str(self.port), "-U", "postgres"]
        return ["pgbench", "-S", "-n", "-c", "1", "-T", str(max(1, round(seconds))), *where, "postgres"]

    def rate(self, output):
        return float(re.search(r"^tps = ([0-9.]+)", output, re.M).group(1))

    def observed(self):
        # Each connection has a process of its own.
        server = self.processes[0].pid
        children = subprocess.run(["pgrep", "-P", str(server)], capture_output=True, text=True).stdout
        return [server, *map(int, children.split())]


class MariaDb(Program):
    name, needs = "MariaDB, SELECT of one row, 1 client", ("mariadbd", "mariadb-install-db")

    @classmethod
    def missing(cls):
        return super().missing() or lacks_module("pymysql")

    def start(self, way):
        data = self.folder / "data"
        own = ["--no-defaults", f"--datadir={data}", "--user=root"]
        if not data.exists():
            made = ["mariadb-install-db", *own, "--auth-root-authentication-method=normal", "--skip-test-db"]
            subprocess.run(made, check=True, capture_output=True)
        where = [f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self.path}"]
        self.run("mariadbd", *own, *where, f"--pid-file={self.folder}/pid", "--skip-grant-tables", "--skip-networking=0")
        self.wait_for("unix")

    def load(self, way, seconds):
        return [PYTHON, PEER, "mariadb", "ask", self.address(way), str(seconds)]


class DBus(Program):
    """A client that asks the daemon itself."""

    name, needs = "D-Bus, calls to the daemon", ("dbus-daemon",)

    @classmethod
    def missing(cls):
        return super().missing() or lacks_module("dbus")

    def start(self, way):
        config = self.folder / "bus.conf"
        config.write_text(
            f"<busconfig><type>session</type><listen>unix:path={self.path}</listen>"
            f"<listen>tcp:host=127.0.0.1,port={self.port},family=ipv4</listen><auth>ANONYMOUS</auth><auth>EXTERNAL</auth>"
            "<allow_anonymous/><policy context='default'><allow send_destination='*' eavesdrop='true'/>"
            "<allow eavesdrop='true'/><allow own='*'/></policy></busconfig>"
        )
        self.run("dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile")
        self.wait_for(way)

    def load(self, way, seconds):
        return [PYTHON, PEER, "dbus", "ask", self.address(way), str(seconds)]


class Nginx(Program):
    """A proxy in front of a server; the observed channel is that between these two."""

    name, needs, records_load = "nginx, a proxy and its upstream", ("nginx",), False

    def start(self, way):
        front = free_port()
        upstream = f"unix:{self.path}" if way == "unix" else f"127.0.0.1:{self.port}"
        common = "daemon off; master_process off; error_log /dev/null; events {} http { access_log off; "
        back = f"listen {upstream}; location / {{ return 200 'the end\\n'; }} keepalive_requests 1000000000;"
        proxy = (
            f"listen 127.0.0.1:{front}; keepalive_requests 1000000000; location / {{ proxy_pass http://back; "
            "proxy_http_version 1.1; proxy_set_header Connection ''; }"
        )
        alive = "keepalive 4; keepalive_requests 1000000000;"
        for name, body in [
            ("back", f"server {{ {back} }}"),
            ("front", f"upstream back {{ server {upstream}; {alive} }} server {{ {proxy} }}"),
        ]:
            config = self.folder / f"{name}.conf"
            config.write_text(f"pid {self.folder}/{name}.pid; {common} {body} }}")
            self.run("nginx", "-p", str(self.folder), "-c", str(config), server=name == "back")
            if name == "back":
                self.wait_for(way)
        self.port = front
        self.wait_for("tcp")

    def load(self, way, seconds):
        return [PYTHON, PEER, "http", "ask", str(self.port), str(seconds)]

    def stop(self):
        super().stop()
        Path(self.path).unlink(missing_ok=True)
        self.port = free_port()


class Peers(Program):
    kind, module = "", ""

    @classmethod
    def missing(cls):
        return lacks_module(cls.module)

    def start(self, way):
        Path(self.path).unlink(missing_ok=True)
        self.run(PYTHON, PEER, self.kind, "serve", self.address(way))
        # Connecting to see whether it listens would disturb some of these.
        for _ in range(200):
            said = subprocess.run(["ss", "-Hlx" if way == "unix" else "-Hlt"], capture_output=True, text=True).stdout
            if self.path in said or f":{self.port} " in said:
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not listen")

    def load(self, way, seconds):
        return [PYTHON, PEER, self.kind, "ask", self.address(way), str(seconds)]


class Multiprocessing(Peers):
    name, kind, module = "Python, multiprocessing.connection", "multiprocessing", "multiprocessing"


class ZeroMq(Peers):
    name, kind, module = "ZeroMQ, REQ and REP from Python", "zeromq", "zmq"


class Grpc(Peers):
    name, kind, module = "gRPC from Python, one call at a time", "grpc", "grpc"


class OpenMpi(Program):
    """Two ranks that ask and answer without a pause; they reach each other by TCP or by shared memory, and never sleep."""

    name, needs = "Open MPI, round trips of 8 B (shared memory)", ("mpirun.openmpi", "mpicc.openmpi")
    records_load, instead = False, "shm-spin"

    def pinned(self, server):
        # Each rank needs a CPU; mpirun gives them one each by itself.
        return []

    def start(self, way):
        self.exchange = self.folder / "exchange"
        if not self.exchange.exists():
            source = Path(__file__).resolve().parent.parent.parent / "crates/lab/src/mpi/exchange.c"
            subprocess.run(["mpicc.openmpi", "-O2", "-o", str(self.exchange), str(source)], check=True)

    def observed(self):
        """The ranks, which belong to the load."""
        found = []
        for link in Path("/proc").glob("[0-9]*/exe"):
            try:
                found += [int(link.parent.name)] if link.readlink() == self.exchange else []
            except OSError:
                pass
        return found

    def load(self, way, seconds):
        carrier = "self,vader" if way == "unix" else "self,tcp"
        words = ["--allow-run-as-root", "--mca", "pml", "ob1", "--mca", "btl", carrier, "--mca", "btl_tcp_if_include", "lo"]
        return ["mpirun.openmpi", *words, "-np", "2", str(self.exchange), str(seconds), "ask"]

    def stop(self):
        # They outlive mpirun if it is killed.
        for pid in self.observed() if self.folder.joinpath("exchange").exists() else []:
            os.kill(pid, signal.SIGKILL)


PROGRAMS = [Redis, RedisMany, Memcached, Postgres, MariaDb, Nginx, Multiprocessing, ZeroMq, Grpc, DBus, OpenMpi]
