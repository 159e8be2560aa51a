"""More processes than a slice has slots: those that find none get no memory, and nobody else notices."""
import os
import signal
import struct
import tempfile

from hostile import MIB, SLOT_STRIDE, SLOTS, TESSERA, Case, main, owner_word, program

SLOT_COUNT, FREE, MORE = 4096, 300, 40
# A large card whose contexts are small, so that slots run out and memory does not.
NODE = "cards:\n  - name: NVIDIA A100-SXM4-80GB\n    memory_mib: 81920\n    context_mib: 2\n"


class Slots(Case):
    def test_more_processes_than_slots(self):
        # All slots but some are taken by one process, as a tenant can do with a few lines; then real processes come for the rest.
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as node:
            node.write(NODE)
            node.flush()
            machine = self.machine(node.name)
            machine.hold(700, "--name", "neighbour")
            script = f"exec 3<&0; sleep 300 >/dev/null 2>&1 & echo $!; read line; exec {program('slots')} {FREE + MORE} <&3"
            crowd = machine.start(TESSERA, "run", "--mem", "60000", "--name", "crowd", "--", "sh", "-c", script)
            sleeper = int(crowd.stdout.readline())
            rows = bytearray((SLOT_COUNT - FREE) * SLOT_STRIDE)
            for index in range(SLOT_COUNT - FREE):
                struct.pack_into("<Q", rows, index * SLOT_STRIDE, owner_word(sleeper))
            with open(self.ledger(machine, "crowd"), "r+b") as file:
                file.seek(SLOTS)
                file.write(rows)
                file.seek(56)
                file.write(struct.pack("<Q", SLOT_COUNT - FREE))
            crowd.stdin.write("go\n")
            crowd.stdin.flush()
            self.says(crowd, f"granted {FREE} refused {MORE} failed 0")
            ps = self.assert_untouched(machine, "neighbour", 700)
            (slice_,) = [found for found in ps["slices"] if found["name"] == "crowd"]
            self.assertGreaterEqual(slice_["slots_refused"], MORE)
            self.assertEqual(slice_["cards"][0]["held_by_kind"]["linear"], FREE * 2 * MIB)
            self.assertTrue(any("found no free slot" in remark for remark in slice_["remarks"]), slice_["remarks"])
            self.assertEqual(ps["findings"], [])
            os.kill(sleeper, signal.SIGKILL)
            self.ends(crowd)


if __name__ == "__main__":
    main()
