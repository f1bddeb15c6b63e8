//! One verb, one module. A verb parses its own options, calls one library crate and prints.

mod check;
mod compare;
mod complete;
mod explain;
mod gateway;
pub(crate) mod help;
pub(crate) mod iperf3;
mod lab;
mod link;
mod live;
pub(crate) mod load;
mod manual;
mod mpi;
mod netmap;
pub(crate) mod options;
mod path;
mod pkt;
mod place;
mod port;
mod rank;
mod report;
mod reproduce;
mod rings;
mod run;
mod serve;
mod switch;
mod test;
mod tester;
mod topo;
mod tune;
mod vm;

use clap::Subcommand;

use crate::VerbResult;

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Characterise the path to HOST, identify the bottleneck, write results.json and report.html.
    Path(path::PathArgs),
    /// Find the cores on which a flow's two threads run best.
    Place(place::PlaceArgs),
    /// Run a program on the cores of a placement file.
    Run(run::RunArgs),
    /// Identify the bottleneck from stored results; measures nothing.
    Explain(explain::ExplainArgs),
    /// Compare two results files or folders of them: what differs beyond the noise.
    Compare(compare::CompareArgs),
    /// Run one test against HOST.
    Test(test::TestArgs),
    /// Serve tests to other hosts (also to stock iperf3 clients).
    Serve(serve::ServeArgs),
    /// Show the traffic of each interface every second, at one end or both.
    Live(live::LiveArgs),
    /// Show the hardware of this host and how fast each interface could be.
    Topo(topo::TopoArgs),
    /// Run the packet switch: ports and pipes in shared memory for local processes.
    Switch(switch::SwitchArgs),
    /// Add, remove and list the switch's ports and show their counters.
    Port(port::PortArgs),
    /// Connect switches and ports by links with delay, rate, jitter and loss.
    Link(link::LinkArgs),
    /// Boot guests on the switch's ports: stock QEMU, unmodified virtio-net drivers.
    Vm(vm::VmArgs),
    /// Send, receive, echo and bridge frames on ports and pipes; measure their latency.
    Pkt(pkt::PktArgs),
    /// Run an unmodified netmap program on the switch's ports and pipes.
    Netmap(netmap::NetmapArgs),
    /// Run an unmodified MPI job over ClearStream's messages.
    Mpi(mpi::MpiArgs),
    /// Emulate hosts, links and switches on this machine.
    Lab(lab::LabArgs),
    /// Repeat a paper's figure or table and compare the results.
    Reproduce(reproduce::ReproduceArgs),
    /// Route over many gateways by one plan: check, apply, watch, drain, explain.
    Gateway(gateway::GatewayArgs),
    /// Check a DVE model: deadlocks, assertions, LTL.
    Check(check::CheckArgs),
    /// Write and read files by many ranks at once, with IOR's command line.
    #[command(after_help = load::help(load::Kind::Io))]
    Io(load::LoadArgs),
    /// Create, stat and remove files by many ranks at once, with mdtest's command line.
    #[command(after_help = load::help(load::Kind::Meta))]
    Meta(load::LoadArgs),
    /// Write an offline HTML report from a results file.
    Report(report::ReportArgs),
    /// Change host settings that limit a path; undo the changes exactly.
    Tune(tune::TuneArgs),
    /// iperf3's own flags, units, output and JSON.
    #[command(after_help = ::iperf3::options::help())]
    Iperf3(iperf3::Iperf3Args),
    /// Explain a command, or a topic: limits, files, exit codes.
    Help(help::HelpArgs),
    /// Write man pages and shell completions.
    #[command(hide = true)]
    Manual(manual::ManualArgs),
    /// Print the names that a word of a command line can be completed to.
    #[command(hide = true)]
    Complete(complete::CompleteArgs),
    /// Make tests that another process of this program asks for.
    #[command(hide = true)]
    Tester(tester::TesterArgs),
    /// Send or take frames by a guest's /dev/netmap.
    #[command(hide = true)]
    Rings(rings::RingsArgs),
    /// Measure messages as a rank of an MPI job.
    #[command(hide = true)]
    Rank(rank::RankArgs),
}

pub(crate) fn run(verb: &Verb, json: bool) -> VerbResult {
    match verb {
        Verb::Path(args) => path::run(args, json),
        Verb::Place(args) => place::run(args, json),
        Verb::Run(args) => run::run(args, json),
        Verb::Explain(args) => explain::run(args, json),
        Verb::Compare(args) => compare::run(args, json),
        Verb::Test(args) => test::run(args, json),
        Verb::Serve(args) => serve::run(args, json),
        Verb::Live(args) => live::run(args, json),
        Verb::Topo(args) => topo::run(args, json),
        Verb::Switch(args) => switch::run(args, json),
        Verb::Port(args) => port::run(args, json),
        Verb::Link(args) => link::run(args, json),
        Verb::Vm(args) => vm::run(args, json),
        Verb::Pkt(args) => pkt::run(args, json),
        Verb::Netmap(args) => netmap::run(args, json),
        Verb::Mpi(args) => mpi::run(args, json),
        Verb::Lab(args) => lab::run(args, json),
        Verb::Reproduce(args) => reproduce::run(args, json),
        Verb::Gateway(args) => gateway::run(args, json),
        Verb::Check(args) => check::run(args, json),
        Verb::Io(args) => load::run(load::Kind::Io, args, json),
        Verb::Meta(args) => load::run(load::Kind::Meta, args, json),
        Verb::Report(args) => report::run(args, json),
        Verb::Tune(args) => tune::run(args, json),
        Verb::Iperf3(args) => iperf3::run(args, json),
        Verb::Help(args) => help::run(args, json),
        Verb::Manual(args) => manual::run(args, json),
        Verb::Complete(args) => complete::run(args, json),
        Verb::Tester(args) => tester::run(args, json),
        Verb::Rings(args) => rings::run(args, json),
        Verb::Rank(args) => rank::run(args, json),
    }
}
