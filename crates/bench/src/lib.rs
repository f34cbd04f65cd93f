//! Benchmarks: one command each, `bursar bench NAME`, ending in plain lines `figure <name> <number>`.

pub mod api;
pub mod decision;
pub mod engine;
pub mod ledger;
pub mod parts;
pub mod probe;

/// The benchmarks by name.
pub const NAMES: &[&str] = &["ledger", "serve", "quota", "capsule", "karmada", "datum", "orgs", "operator", "stall"];

/// Not a benchmark: what one of them runs under callgrind.
const DECISION_WORK: &str = "decision-work";

/// Not a benchmark: a service on PostgreSQL that one of them compares with.
const ORGS_SERVICE: &str = "orgs-service";

/// Runs one benchmark. `this_command` are the words that make this program call this function; a benchmark may run itself.
pub fn run(name: &str, arguments: &[String], this_command: &[&str]) -> anyhow::Result<()> {
    match (name, arguments) {
        ("ledger", arguments) => ledger::run(arguments, this_command),
        ("serve", arguments) => api::serve::run(arguments),
        ("quota", arguments) => api::quota::run(arguments),
        ("capsule", arguments) => api::capsule::run(arguments),
        ("karmada", arguments) => api::karmada::run(arguments),
        ("datum", arguments) => api::datum::run(arguments),
        ("orgs", arguments) => api::orgs::run(arguments, this_command),
        ("operator", arguments) => api::operator::run(arguments),
        ("stall", arguments) => api::stall::run(arguments),
        (ORGS_SERVICE, [folder, connections, way]) => api::orgs_service::run(folder, connections.parse()?, way),
        (DECISION_WORK, [claims, accounts]) => {
            decision::work(decision::Size { claims: claims.parse()?, accounts: accounts.parse()? });
            Ok(())
        }
        _ => anyhow::bail!("there is no benchmark \"{name}\"; there are: {}", NAMES.join(", ")),
    }
}
