//! `bursar bench`: benchmarks that run beside the systems they compare with, on this machine.

#[derive(clap::Args)]
pub struct Args {
    /// Which benchmark: ledger, serve, quota, capsule, karmada, datum, orgs, operator or stall
    name: String,
    /// Its own options; an unknown one prints them all
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    // A benchmark says where it was and keeps what went wrong as the cause; both are to be read.
    ::bench::run(&args.name, &args.options, &["bench"]).map_err(|error| anyhow::anyhow!("{error:#}"))
}
