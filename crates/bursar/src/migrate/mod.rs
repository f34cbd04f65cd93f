//! `bursar migrate`: from other quotas to the ones Bursar keeps exactly.
//!
//! ```text
//! Tenants and their ResourceQuotas ── source ──▶ plan (pure: pools and claims, or every reason why not) ──▶ YAML
//!                                                   └─ --apply: tried on the server, applied, verified, or taken back
//! ```

mod apply;
mod plan;
mod source;
mod tenant;
mod verify;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use plan::{Options, Plan};
use source::Source;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    from: From,
}

#[derive(clap::Subcommand)]
enum From {
    /// Turn the resourceQuotas of Capsule Tenants into ResourcePools and ResourcePoolClaims, for all their namespaces.
    ///
    /// Without --apply nothing is changed and the manifests are printed. The server is the one KUBECONFIG names.
    CapsuleTenant(CapsuleTenant),
}

#[derive(clap::Args)]
struct CapsuleTenant {
    /// Which tenants; all that have quotas to migrate when none is named
    tenants: Vec<String>,
    /// Read Tenants and their ResourceQuotas from these files (YAML or JSON, - for standard input) instead of the server
    #[arg(short, long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Apply the manifests to the server and verify the result; take them back if it is not as it should be
    #[arg(long)]
    apply: bool,
    /// Let each claim ask for this much more than is used now, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    headroom: u16,
    /// How long the server may take to do its part before everything is taken back
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let From::CapsuleTenant(args) = args.from;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(capsule_tenant(args))
}

async fn capsule_tenant(args: CapsuleTenant) -> anyhow::Result<()> {
    let needs_server = args.apply || args.files.is_empty();
    let client = match needs_server {
        true => Some(kube::Client::try_default().await.context("no server to speak to: is KUBECONFIG set?")?),
        false => None,
    };
    let source = match &client {
        Some(client) if args.files.is_empty() => Source::from_server(client, &args.tenants).await?,
        _ => Source::from_files(&args.files)?,
    };
    let tenants = source.choose(&args.tenants)?;
    let mut plan = Plan::default();
    let mut problems = Vec::new();
    for tenant in &tenants {
        match plan::plan(tenant, &Options { headroom_percent: args.headroom }) {
            Ok(one) => plan.extend(one),
            Err(found) => problems.extend(found.into_iter().map(|why| format!("tenant {}: {why}", tenant.name))),
        }
    }
    refuse(problems)?;
    for note in &plan.notes {
        eprintln!("note: {note}");
    }
    if plan.pools.is_empty() {
        println!("Nothing to migrate.");
        return Ok(());
    }
    let Some(client) = client else { return print(&plan) };
    refuse(apply::settle_with_existing(&client, &mut plan).await?)?;
    if !args.apply {
        return print(&plan);
    }
    apply::run(&client, &plan, Duration::from_secs(args.timeout)).await?;
    println!("\nThe old quotas are still in force beside the new ones. To remove them, empty spec.resourceQuotas:\n");
    for tenant in &tenants {
        let patch = r#"[{"op": "remove", "path": "/spec/resourceQuotas"}]"#;
        println!("  kubectl patch tenant {} --type=json -p '{patch}'", tenant.name);
    }
    Ok(())
}

/// Nothing is migrated by halves: one reason against it stops everything.
fn refuse(problems: Vec<String>) -> anyhow::Result<()> {
    match problems.as_slice() {
        [] => Ok(()),
        problems => bail!("nothing was changed:\n  {}", problems.join("\n  ")),
    }
}

fn print(plan: &Plan) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for manifest in plan.manifests() {
        write!(out, "---\n{}", serde_saphyr::to_string(manifest)?.trim_start_matches("---\n"))?;
    }
    Ok(())
}
