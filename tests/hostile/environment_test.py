"""CUDA_VISIBLE_DEVICES is exchanged around the driver's cuInit: nothing that the program sets, reads or forks meanwhile is lost."""
import subprocess

from hostile import BOUND, Case, main, program


class Environment(Case):
    def race(self, what, devices=None, delay_ms=400):
        machine = self.machine("two-a10g")
        made = machine.run("true")
        self.assertEqual(made.returncode, 0, made.stderr)
        if delay_ms:
            slow = subprocess.run([machine.sim, "inject", "--state", machine.folder + "/node", "fault", "cuInit", "--delay-ms", str(delay_ms)],
                                  capture_output=True, text=True, timeout=BOUND)
            self.assertEqual(slow.returncode, 0, slow.stderr)
        machine.environment.pop("CUDA_VISIBLE_DEVICES", None)
        if devices is not None:
            machine.environment["CUDA_VISIBLE_DEVICES"] = devices
        done = machine.cli("run", "--mem", "1000", "--card", "1", "--", program("init_race"), what)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "ok\n", ""), (what, devices))

    def both(self, what, **more):
        for devices in (None, "0"):
            with self.subTest(devices=devices):
                self.race(what, devices, **more)

    def test_what_other_threads_set_meanwhile_stays(self):
        self.both("set")

    def test_the_variable_itself_set_meanwhile_stays(self):
        self.both("set-it")

    def test_the_variable_removed_meanwhile_stays_removed(self):
        self.race("unset-it", "0")

    def test_a_child_forked_meanwhile_has_the_programs_environment(self):
        self.both("fork")

    def test_many_threads_at_once(self):
        self.both("threads", delay_ms=0)

    def test_no_environment_at_all(self):
        self.both("cleared", delay_ms=0)


if __name__ == "__main__":
    main()
