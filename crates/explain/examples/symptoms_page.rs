//! Prints `docs/symptoms.md`.

fn main() {
    print!("{}", explain::symptoms::symptoms_page());
}
