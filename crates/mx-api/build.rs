//! The library has the name that MX's programs ask for, exports MX's names alone, and stays loaded once it was: its
//! threads and its statics outlive a `dlclose`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for argument in ["-soname,libmyriexpress.so", "-z,nodelete", "--exclude-libs,ALL"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
