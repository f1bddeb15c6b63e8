//! The library stays loaded once it was: its threads and its statics outlive a `dlclose`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
