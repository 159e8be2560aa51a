"""ps, top, explain and doctor on a simulated machine. look_test.py TESSERA_SIM TESSERA"""
import os
import sys
import unittest

from machine import HOLDER, Machine, wait_until

SIM, TESSERA = sys.argv[1:3]
MIB = 1 << 20


class Look(unittest.TestCase):
    def setUp(self):
        self.machine = Machine(SIM, TESSERA)
        self.machine.__enter__()
        self.addCleanup(self.machine.__exit__)

    def test_an_empty_machine(self):
        answer = self.machine.cli("ps")
        self.assertEqual((answer.returncode, answer.stdout), (0, "No slices on this machine.\n"), answer.stderr)
        ps = self.machine.json("ps")
        self.assertEqual(ps["schema"], "tessera.ps/1")
        self.assertEqual(ps["slices"], [])
        self.assertEqual(ps["cards"][0]["memory_bytes"], 23028 * MIB)

    def test_a_small_stack_is_enough(self):
        self.machine.hold(1000, "--name", "chat")
        for command in ("ps", "doctor", "top -n 1", "explain chat", "limit chat --mem 2000", "run --mem 10 -- true"):
            with self.subTest(command):
                done = self.machine.run("sh", "-c", f"ulimit -s 64; exec {TESSERA} {command}")
                self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
                if command == "ps":
                    self.assertIn("holder.py 1000", done.stdout, "what only the memory of a process says")

    def test_a_slice_is_shown_with_what_it_holds(self):
        self.machine.hold(2000, "--name", "chat", "--cores", "30", "--priority", "high", slice_mib=8000)
        ps = self.machine.json("ps")
        (chat,) = ps["slices"]
        self.assertEqual((chat["name"], chat["priority"], chat["fence"], chat["remarks"]), ("chat", "high", "live", []))
        (card,) = chat["cards"]
        self.assertEqual((card["promised_bytes"], card["cores"], card["index"]), (8000 * MIB, 30, 0))
        self.assertEqual(card["held_by_kind"]["linear"], 2000 * MIB)
        self.assertGreater(card["held_by_kind"]["context"], 0)
        (process,) = chat["processes"]
        self.assertTrue(process["fence_mapped"])
        self.assertTrue(process["policy_is_ours"])
        self.assertEqual(process["held_bytes"][0], card["held_bytes"])
        # The driver and the ledger agree to the byte on a simulated card.
        self.assertEqual(process["driver_bytes"][0], process["held_bytes"][0])
        self.assertEqual(ps["findings"], [])
        self.assertEqual(ps["foreign"], [])
        text = self.machine.cli("ps").stdout
        self.assertTrue(all(len(line) <= 80 for line in text.splitlines()), text)
        self.assertIn("chat ", text)

    def test_denied_requests_are_counted(self):
        holder = self.machine.start(TESSERA, "run", "--mem", "1000", "--name", "greedy", "--", "sh", "-c",
                                    f"{sys.executable} {HOLDER} 5000; echo done; read line")
        self.assertEqual(holder.stdout.readline().strip(), "out of memory")
        self.assertEqual(holder.stdout.readline().strip(), "done")
        (card,) = self.machine.json("ps")["slices"][0]["cards"]
        self.assertEqual((card["denied_count"], card["denied_last_bytes"], card["held_bytes"]), (1, 5000 * MIB, 0))

    def test_foreign_processes_are_named(self):
        foreign = self.machine.start(sys.executable, HOLDER, "700")
        self.assertEqual(foreign.stdout.readline().strip(), "holding")
        (seen,) = self.machine.json("ps")["foreign"]
        self.assertEqual(seen["card"], 0)
        self.assertIn("holder.py", seen["command"])
        self.assertGreater(seen["driver_bytes"], 700 * MIB)
        doctor = self.machine.json("doctor")
        levels = {check["id"]: check["level"] for check in doctor["checks"]}
        self.assertEqual(levels["foreign"], "warning")
        self.assertEqual(levels["bypass"], "ok")

    def test_doctor_is_content_with_a_machine_in_order(self):
        self.machine.hold(1000, "--name", "chat")
        doctor = self.machine.json("doctor")
        levels = {check["id"]: check["level"] for check in doctor["checks"]}
        for check in ("driver", "cards", "fence-library", "slices", "foreign", "bypass"):
            self.assertEqual(levels[check], "ok", doctor["checks"])
        self.assertEqual(doctor["exit_code"], 1 if "warning" in levels.values() else 0)

    def test_explain_says_where_and_why_not(self):
        self.machine.hold(100, "--name", "chat", slice_mib=20000)
        fits = self.machine.json("explain", "--mem", "3000")
        self.assertTrue(fits["fits"])
        refused = self.machine.cli("explain", "--mem", "8000")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("3,028", refused.stdout)
        too_large = self.machine.cli("explain", "--mem", "90000")
        self.assertEqual(too_large.returncode, 2, too_large.stdout)
        chat = self.machine.json("explain", "chat")
        held = {row["what"]: row["held"] for row in chat["guarantees"]}
        self.assertEqual((held["memory"], held["compute share"], held["priority"]), (True, False, False))
        nobody = self.machine.cli("explain", "nobody")
        self.assertEqual(nobody.returncode, 1)
        self.assertEqual(nobody.stderr, "tessera explain: NAME: 'nobody' is no live slice; live: chat\n")

    def test_a_manifest_gives_the_request(self):
        manifest = self.machine.folder + "/pod.yaml"
        with open(manifest, "w", encoding="utf-8") as file:
            file.write("kind: Pod\nmetadata: {name: demo}\nspec:\n  containers:\n  - name: embed\n"
                       "    resources: {limits: {nvidia.com/gpumem: 2k, nvidia.com/gpucores: 20}}\n")
        slice_ = self.machine.start(TESSERA, "run", "-f", manifest, "--", sys.executable, HOLDER, "500")
        self.assertEqual(slice_.stdout.readline().strip(), "holding")
        (embed,) = self.machine.json("ps")["slices"]
        self.assertEqual((embed["name"], embed["cards"][0]["promised_bytes"], embed["cards"][0]["cores"]),
                         ("embed", 2000 * MIB, 20))

    def test_top_prints_plain_frames_where_there_is_no_terminal(self):
        self.machine.hold(2000, "--name", "chat")
        answer = self.machine.cli("top", "-n", "2", "--interval", "1")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(answer.stdout.count("tessera top "), 2)
        self.assertNotIn("\x1b", answer.stdout)
        self.assertTrue(all(len(line) <= 80 for line in answer.stdout.splitlines()), answer.stdout)

    def test_bad_values_are_named(self):
        for words, error in (
            (("top", "-n", "0"), "tessera top: --iterations: '0' is not legal: whole numbers from 1 to 1,000,000\n"),
            (("top", "--interval", "0.5"), "tessera top: --interval: '0.5' is not legal: whole numbers from 1 to 3,600\n"),
            (("explain",), "tessera explain: give the NAME of a slice, or --mem or -f to ask whether it would fit\n"),
        ):
            answer = self.machine.cli(*words)
            self.assertEqual((answer.returncode, answer.stderr), (2, error))

    def test_a_killed_slice_is_gone_within_a_second(self):
        process = self.machine.hold(2000, "--name", "chat")
        pid = self.machine.json("ps")["slices"][0]["processes"][0]["pid"]
        os.kill(pid, 9)
        process.wait()
        wait_until("the promise is back", lambda: self.machine.json("ps")["slices"] == [], 5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
