//! `clearstream vm`: boots and manages guests on ports of a running switch.

mod boot;
mod console;
mod port;
mod show;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use packet_switch::client::default_socket;
use serde_json::json;
use vm::{Machine, Program};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// Options of `vm`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream vm image                    build the default image, once\n  \
    clearstream switch run &\n  \
    clearstream vm run one --port vale0:one\n  \
    clearstream vm run two --port vale0:two --memory 512M --cores 2\n  \
    clearstream vm exec one -- ip addr add 10.0.0.1/24 dev eth0\n  \
    clearstream vm console one\n  \
    clearstream vm list\n  \
    clearstream vm down --all\n  \
    clearstream vm run gate --passthrough eth1                 on a network device, without a switch\n  \
    clearstream vm port vale0:other --path /run/other.sock     for a QEMU of your own\n\n\
    A guest is stock QEMU with an unmodified virtio-net driver, connected to the switch by\n\
    vhost-user, or (--type ptnet) with the driver of guest/ptnet on the port's rings. It runs under\n\
    KVM where KVM can run a small test guest, otherwise under TCG (slower). A guest ends when its\n\
    keeper process or QEMU ends, and its port is then removed. If the switch is restarted, the port\n\
    is added again and the guest continues. Needs no privilege except access to /dev/kvm, and for\n\
    --passthrough that of `port add --type xdp`. See `clearstream help guests`.")]
pub(crate) struct VmArgs {
    #[command(subcommand)]
    action: Action,
    /// The switch's socket [default: $CLEARSTREAM_SWITCH, else below $XDG_RUNTIME_DIR, else /run].
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Boot a guest on a port of the switch, and print QEMU's command line.
    Run(Box<boot::RunArgs>),
    /// Add a port for a guest that somebody else starts, and print the options for its hypervisor.
    Port(port::PortArgs),
    /// List the guests that are up.
    List,
    /// Talk to a guest on its first serial port; Ctrl-] leaves.
    Console {
        /// Name of the guest.
        name: String,
    },
    /// Run a program in a guest, through the shell on its second serial port.
    Exec(ExecArgs),
    /// End a guest and remove its port.
    Down {
        /// Name of the guest; may be omitted if only one is up.
        name: Option<String>,
        /// All guests that are up.
        #[arg(long, conflicts_with = "name")]
        all: bool,
        /// Succeed even if no such guest is up, for scripts that clean up.
        #[arg(long)]
        if_up: bool,
    },
    /// Build the default guest image: Debian's kernel and busybox.
    Image(ImageArgs),
    /// A guest's keeper.
    #[command(hide = true)]
    Internal { place: PathBuf, name: String },
}

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "clearstream vm exec NAME -- PROGRAM [ARGUMENT]...",
    after_help = "Example:\n  clearstream vm exec one -- sh -c 'ip -s link | head'\n\n\
    Exits with the program's code. The program's output and errors both arrive on standard output,\n\
    because one serial line carries them; its standard input is empty. Commands of several callers\n\
    wait for each other. Ctrl-C ends the program but not what it started in the background."
)]
struct ExecArgs {
    /// The guest.
    name: String,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  clearstream vm image --program /usr/bin/iperf3\n\n\
    Fetches Debian's cloud kernel with `apt-get download` (60 MB; nothing is installed) and keeps it.\n\
    $GUEST_KERNEL names another release, such as 6.12.0-1-cloud-amd64. The image is built again only\n\
    when something has changed. The driver for --type ptnet is built with that kernel's headers\n\
    (fetched the same way), gcc and make; if one of these is missing, the image has no driver.")]
struct ImageArgs {
    /// Where the image is kept [default: $CLEARSTREAM_GUEST, else clearstream/guest in the user's
    /// cache].
    #[arg(long = "image", value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Program to put into the guest's /bin, with its libraries; may be repeated.
    #[arg(long = "program", value_name = "FILE")]
    programs: Vec<PathBuf>,
}

pub(crate) fn run(args: &VmArgs, json: bool) -> VerbResult {
    let switch = std::path::absolute(args.socket.clone().unwrap_or_else(default_socket))?;
    match &args.action {
        Action::Run(run) => boot::run(run, &switch, json),
        Action::Port(port) => port::run(port, &switch, json),
        Action::List => show::list(json),
        Action::Console { name } => console::run(name),
        Action::Exec(exec_args) => exec(exec_args),
        Action::Down { name: Some(name), if_up, .. } => down(vec![name.clone()], *if_up, json),
        Action::Down { all: true, .. } => down(names_up()?, true, json),
        Action::Down { name: None, .. } => match &names_up()?[..] {
            [] => down(Vec::new(), true, json),
            [one] => down(vec![one.clone()], true, json),
            up => Err(VerbError::usage(format!("name one of the guests: {}", up.join(", ")))),
        },
        Action::Image(args) => image(args, json),
        Action::Internal { place, name } => Ok(Exit::Program(vm::keeper::run(place, name))),
    }
}

/// The program for a guest's keeper: this one.
fn program() -> Program {
    Program::new("/proc/self/exe", ["vm", "internal"])
}

fn names_up() -> Result<Vec<String>, VerbError> {
    Ok(Machine::all()?.iter().map(|machine| machine.state().config.name).collect())
}

fn down(names: Vec<String>, may_be_down: bool, json: bool) -> VerbResult {
    let mut out = crate::out::stdout();
    let mut gone = Vec::new();
    for name in names {
        let was_up = Machine::down(&name)?;
        if !was_up && !may_be_down {
            // Its error names the guests that are up.
            Machine::open(&name)?;
        }
        if !json {
            writeln!(out, "guest {name} {}", if was_up { "is down" } else { "was not up" })?;
        }
        gone.push(json!({ "name": name, "was_up": was_up }));
    }
    if json {
        writeln!(out, "{}", json!({ "down": gone }))?;
    } else if gone.is_empty() {
        writeln!(out, "no guest is up")?;
    }
    Ok(Exit::Ok)
}

fn exec(args: &ExecArgs) -> VerbResult {
    crate::guest::run(&Machine::open(&args.name)?, &args.program)
}

fn image(args: &ImageArgs, json: bool) -> VerbResult {
    let folder = args.folder.clone().unwrap_or_else(vm::image::default_folder);
    // A closed stderr does not affect the image.
    let tell = |step: &str| drop(writeln!(crate::out::stderr(), "{step}"));
    let image = vm::image::make(&folder, &args.programs, tell)?;
    let mut out = crate::out::stdout();
    let shown = |path: &Path| path.display().to_string();
    if json {
        let line = json!({ "kernel": shown(&image.kernel), "initrd": shown(&image.initrd),
            "no_ptnet": image.no_ptnet });
        writeln!(out, "{line}")?;
    } else {
        writeln!(out, "kernel {}", shown(&image.kernel))?;
        writeln!(out, "initrd {}", shown(&image.initrd))?;
        if let Some(why) = image.no_ptnet {
            writeln!(out, "without the driver for --type ptnet: {why}")?;
        }
    }
    Ok(Exit::Ok)
}
