"""Writes a slice directory by hand for benchmarks that need no node: offsets as in docs/formats/slice-directory.md."""
import os
import struct

POLICY_MAGIC = 0x31594C4F50525354
LEDGER_MAGIC = 0x3152474445525354
CARDS = 16
SLOTS = 4096
LEDGER_BYTES = 8192 + SLOTS * 1536


def write_slice(directory, uuid, limit_bytes, card_bytes):
    """One card, no compute limit, gates open, no agent."""
    os.makedirs(directory, exist_ok=True)
    size = 512 + CARDS * 256 + CARDS * 64
    policy = bytearray(size)
    struct.pack_into("<QIIIIIIIIQQII", policy, 0, POLICY_MAGIC, 1, size, 512, 256, 1, 512 + CARDS * 256, 64, 0, 1, 0, 0, 0)
    policy[64:69] = b"bench"
    policy[128:133] = b"bench"
    struct.pack_into("<16sQQQIIIIII", policy, 512, uuid, limit_bytes, limit_bytes, card_bytes, 100, 0, 0, 0, 0, 0)
    ledger = bytearray(8192)
    struct.pack_into("<QIIIIIIIII", ledger, 0, LEDGER_MAGIC, 1, LEDGER_BYTES, 512, 128, CARDS, 8192, 1536, SLOTS, 8)
    with open(os.path.join(directory, "policy"), "wb") as out:
        out.write(policy)
    with open(os.path.join(directory, "ledger"), "wb") as out:
        out.write(ledger)
        out.truncate(LEDGER_BYTES)
