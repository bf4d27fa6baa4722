"""The processes that a script starts."""

import signal
import subprocess


class Processes:
    """What was started, and ends with this script."""

    def __init__(self, directory):
        self.directory = directory
        self.running = {}

    def start(self, name, *command, **options):
        log = open(self.log(name), "ab")
        # In a session of its own: an interrupt reaches this script alone, which ends all in order.
        self.running[name] = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options
        )  # fmt: skip
        return self.running[name]

    def log(self, name):
        return self.directory / f"{name}.log"

    def signal(self, name, number):
        self.running[name].send_signal(number)

    def end(self, name):
        process = self.running.pop(name, None)
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def end_all(self):
        for name in reversed(list(self.running)):
            self.end(name)

    def last_words(self, name):
        return self.log(name).read_text(errors="replace")[-300:]

    def ended(self):
        """The first that ended by itself, with its last words."""
        for name, process in self.running.items():
            if process.poll() is not None:
                words = self.log(name).read_text(errors="replace").splitlines()
                return f"{name} ended with {process.returncode}: {words[-1] if words else 'no output'}"
        return None
