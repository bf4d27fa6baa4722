# Sourced. `wheel NAME==VERSION FILE` writes the requirement for pip, with the hashes of the wheels for Linux and macOS, into FILE.

wheel() {
    grep "^$1 " "$(dirname "${BASH_SOURCE[0]}")/wheels.txt" >"$2" || {
        echo "scripts/wheels.txt has no hash of $1" >&2
        return 1
    }
}
