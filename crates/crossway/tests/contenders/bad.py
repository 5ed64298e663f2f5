"""A contender over a UNIX socket that does what its arguments say: MODE [ANSWER]."""

import os
import socket
import sys
import time

import crossway_contender as helper

mode, at = (sys.argv[1:] + ["", ""])[:2]
answers = None


class Channel:
    measuring = False
    late = None

    def library(self):
        return "bad 1.0"

    def listen(self, role):
        path = os.path.join(role.dir, "s")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(1)
        if mode == "late":
            open("/dev/shm/" + role.shm_prefix + "-first", "w").close()
        return {"path": path, "prefix": role.shm_prefix}

    def accept(self):
        self.channel, _ = self.listener.accept()

    def connect(self, role, words):
        self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.connect(words["path"])
        self.late = "/dev/shm/" + words["prefix"]

    def send(self, message):
        if mode == "repeats-one-message" and self.measuring:
            message = bytes(message[:8]) + bytes(len(message) - 8)
        self.channel.sendall(message)

    def receive(self, size):
        message = self.channel.recv(size)
        if not message:
            raise ConnectionError("the peer closed the channel")
        return message

    def close(self):
        self.channel.close()
        if mode == "late" and self.late:
            # The listening end is gone, and what it made was removed.
            while os.path.exists(self.late + "-first"):
                time.sleep(0.001)
            open(self.late + "-last", "w").close()


channel = Channel()


def say(**answer):
    name = answer["answer"]
    channel.measuring = name == "ready"
    if name == at:
        if mode == "silent":
            time.sleep(600)
        elif mode == "dies":
            os._exit(3)
        elif mode == "nonsense":
            answers.write("{what?\n")
        elif mode == "floods":
            for _ in range(1000):
                answers.write("x" * 65536)
        elif mode == "twice":
            helper_say(answers, answer)
    if name == "done":
        if mode == "too-fast":
            answer["end_ns"] -= 10**9
            answer["start_ns"] -= 10**9
        if mode == "counts-too-many":
            answer["sent"] += 1
    if name == "result" and answer["checksum"]:
        if mode == "reads-nothing":
            answer["checksum"] = "0"
        if mode == "short-samples":
            answer["histogram"] = [[ns // 2, n] for ns, n in answer["histogram"]]
    helper_say(answers, answer)


def helper_say(to, answer):
    to.write(helper.json.dumps(answer) + "\n")
    to.flush()


if mode == "runs-away":
    # As a daemon does: the first process ends, its grandchild goes on with the descriptors.
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
if mode == "leaves-a-child" and os.fork() == 0:
    os.setsid()
    os.close(0)
    os.close(1)
    time.sleep(600)
if mode == "old":
    helper.PROTOCOL = 0
answers = os.fdopen(os.dup(1), "w")
try:
    code = helper._serve(channel, os.fdopen(os.dup(0), "r"), say)
except (OSError, ConnectionError) as error:
    helper_say(answers, {"answer": "failed", "reason": str(error)})
    code = 1
os._exit(code)
