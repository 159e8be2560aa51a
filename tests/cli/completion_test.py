"""`tessera completion` in real shells: the script is sourced, then asked. completion_test.py TESSERA_SIM TESSERA"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

TESSERA = sys.argv[2]
SUBCOMMANDS = ["completion", "doctor", "explain", "limit", "ps", "run", "top"]


def needs(shell):
    return unittest.skipUnless(shutil.which(shell), f"{shell} is not installed")


class Completion(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tessera-completion-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.environment = dict(os.environ, HOME=self.folder, XDG_CONFIG_HOME=self.folder, XDG_DATA_HOME=self.folder,
                                PATH=os.path.dirname(TESSERA) + ":" + os.environ["PATH"], LC_ALL="C.UTF-8", TERM="dumb")

    def script(self, shell):
        done = subprocess.run([TESSERA, "completion", shell], capture_output=True, text=True, timeout=30)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        path = f"{self.folder}/_tessera.{shell}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(done.stdout)
        return path

    def ask(self, words):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL)
        self.assertEqual(done.stderr, "", done.stdout)
        return done.stdout.split("\n")

    def bash(self, line):
        """What Tab offers at the end of `line`."""
        ask = ('source "$1"; complete -p tessera >/dev/null || exit 9; COMP_LINE=$2; COMP_POINT=${#2}; read -ra COMP_WORDS <<<"$2"; '
               '[[ $2 == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tessera; printf "%s\\n" "${COMPREPLY[@]}"')
        return sorted(filter(None, self.ask(["bash", "--norc", "--noprofile", "-c", ask, "bash", self.script("bash"), line])))

    def fish(self, line):
        ask = f"source {self.script('fish')}; complete --do-complete '{line}'"
        return sorted({answer.split("\t")[0] for answer in self.ask(["fish", "--no-config", "-c", ask]) if answer})

    def zsh(self, line):
        # zsh completes in its line editor only: a shell in a pseudo terminal, a Tab, and what compadd was given.
        ask = f"""
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1=; PS2=; unsetopt beep; LISTMAX=10000; stty cols 200'
zpty -w z 'fpath=({self.folder} $fpath); autoload -Uz compinit; compinit -u -d {self.folder}/dump; source {self.script("zsh")}'
zpty -w z 'compadd() {{ local -a offered; builtin compadd -O offered "$@"; print -rl -- "OFFER "$^offered > {self.folder}/offers.new; [[ -s {self.folder}/offers.new && -n $offered ]] && cat {self.folder}/offers.new >> {self.folder}/offers; builtin compadd "$@" }}'
zpty -w z 'touch {self.folder}/ready'
for i in {{1..200}}; do [[ -e {self.folder}/ready ]] && break; sleep 0.05; done
zpty -n -w z '{line}'$'\\t'
for i in {{1..100}}; do [[ -s {self.folder}/offers ]] && break; sleep 0.05; done
sleep 0.3
zpty -d z
"""
        offers = self.folder + "/offers"
        if os.path.exists(offers):
            os.unlink(offers)
        if os.path.exists(self.folder + "/ready"):
            os.unlink(self.folder + "/ready")
        self.ask(["zsh", "-f", "-c", ask])
        with open(offers, encoding="utf-8") as file:
            return sorted({line[6:].strip() for line in file if line.startswith("OFFER ") and line[6:].strip()})

    def check(self, complete):
        self.assertEqual([word for word in complete("tessera ") if not word.startswith("-")], SUBCOMMANDS)
        self.assertIn("--mem", complete("tessera run --"))
        self.assertIn("--require-fence", complete("tessera run --"))
        self.assertNotIn("--mem", complete("tessera top --"))
        self.assertEqual([word for word in complete("tessera run --priority ") if word in ("low", "high")], ["high", "low"])
        self.assertEqual([word for word in complete("tessera ps --output ") if word in ("text", "json")], ["json", "text"])
        self.assertEqual([word for word in complete("tessera completion ") if word in ("bash", "zsh", "fish")], ["bash", "fish", "zsh"])

    @needs("bash")
    def test_bash(self):
        self.check(self.bash)

    @needs("fish")
    def test_fish(self):
        self.check(self.fish)

    @needs("zsh")
    def test_zsh(self):
        self.check(self.zsh)

    def test_an_unknown_shell(self):
        done = subprocess.run([TESSERA, "completion", "tcsh"], capture_output=True, text=True, timeout=30)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (2, "", "tessera completion: SHELL: 'tcsh' is not legal: bash, zsh or fish\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
