//! `--help`.

/// Two lines that follow every parameter error.
#[must_use]
pub fn usage() -> &'static str {
    "Usage: iperf3 [-s|-c host] [options]\nTry `iperf3 --help' for more information.\n"
}

/// The long help.
#[must_use]
pub fn help() -> String {
    HELP.to_owned()
}

const HELP: &str = "\
Usage: iperf3 [-s|-c host] [options]
       iperf3 [-h|--help] [-v|--version]

Server or Client:
  -p, --port #              port the server listens on (default 5201)
  -f, --format [kmgtKMGT]   unit of rates: Kbits, Mbits, ... or KBytes, MBytes, ...
  -i, --interval #          seconds between reports (default 1, 0: none)
  -I, --pidfile FILE        write the process id there
  -A, --affinity N[,M]      run on core N (client: ask the server to run on core M)
  -B, --bind HOST[%DEV]     use this local address (and device)
  --bind-dev DEV            use this device (SO_BINDTODEVICE)
  -V, --verbose             more detailed output
  -J, --json                print one JSON document
  --json-stream             print JSON objects, one per line, during the test
  --json-stream-full-output print the whole document after the stream as well
  --logfile FILE            append the output to FILE
  --forceflush              flush the output at every interval
  --timestamps[=FORMAT]     begin lines with the time (strftime(3), default \"%c \")
  --rcv-timeout #           give up after # ms without data (default 120000)
  --snd-timeout #           give up after # ms without acknowledgement (TCP)
  --cntl-ka[=#/#/#]         keep the control connection alive: idle/interval/count
  -m, --mptcp               multipath TCP
  -d, --debug[=#]           debug output, level 1 to 4
  -v, --version             version and features
  -h, --help                this text
Server specific:
  -s, --server              be a server
  -D, --daemon              in the background
  -1, --one-off             serve one client, then end
  --server-bitrate-limit #[KMG][/#]  refuse and end tests beyond this rate
                            (averaged over the seconds after the slash, default 5)
  --idle-timeout #          restart the server after # seconds without a client
  --server-max-duration #   refuse tests longer than # seconds
Client specific:
  -c, --client HOST[%DEV]   test against this server
  -u, --udp                 UDP instead of TCP
  --connect-timeout #       give up connecting after # ms
  -b, --bitrate #[KMG][/#]  target rate of each stream in bit/s, 0: unlimited
                            (default 1 Mbit/s for UDP; after the slash: packets per burst)
  --fq-rate #[KMG]          let the kernel pace each stream (bit/s)
  --pacing-timer #[KMG]     accepted and passed on to old servers
  -t, --time #              seconds to run (default 10)
  -n, --bytes #[KMG]        bytes to transfer instead
  -k, --blockcount #[KMG]   blocks or packets to transfer instead
  -l, --length #[KMG]       bytes per read or write (default 128 KB TCP, path MTU UDP)
  --cport PORT              local port of the first stream
  -P, --parallel #          streams (default 1, at most 128)
  -R, --reverse             the server sends
  --bidir                   both send
  -w, --window #[KMG]       socket buffers
  -C, --congestion ALGO     TCP congestion control
  -M, --set-mss #           TCP maximum segment size
  -N, --no-delay            TCP_NODELAY
  -4, --version4            IPv4 only
  -6, --version6            IPv6 only
  -S, --tos N               type of service, 0 to 255 (decimal, 0octal, 0xhex)
  --dscp N|NAME             differentiated services code point, 0 to 63 or a name
  -L, --flowlabel N         IPv6 flow label
  -Z, --zerocopy            send with sendfile(2)
  --skip-rx-copy            drop received bytes in the kernel (MSG_TRUNC)
  -O, --omit N              do not count the first N seconds
  -T, --title STRING        begin every line with STRING
  --extra-data STRING       put STRING into the JSON of both ends
  --get-server-output       print what the server printed
  --udp-counters-64bit      64-bit sequence numbers in UDP packets
  --gsro                    UDP segmentation and receive offload
  --repeating-payload       accepted: the payload always repeats
  --dont-fragment           set IPv4's Don't Fragment bit (UDP)

[KMG]: the number may end in K, M, G or T (sizes: 1024s, rates: 1000s).
Not supported: -F, --sctp, authentication (--username, --rsa-..., --authorized-users-path).

This is iperf3 as `clearstream` speaks it; `clearstream path HOST` explains what it measures.
";
