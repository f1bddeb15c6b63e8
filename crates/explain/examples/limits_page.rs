//! Prints `docs/limits.md`.

fn main() {
    print!("{}", explain::limits_page());
}
