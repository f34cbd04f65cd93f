//! Commands: what a request writes, which events tell it, and what is answered; or what is wrong with it.
//!
//! Start reading at [`run`]. A command reads the objects as they are stored, and says of every object it changes which revision
//! it was made from; whoever carries it out writes all of it in one step, with the events, or nothing, and runs it again where
//! something has changed meanwhile. Quota is decided in that step and nowhere else.

mod apps;
mod body;
mod deploys;
mod events;
mod instances;
mod network;
mod nodes;
mod operator;
mod problem;
mod scale;
mod sessions;
mod storage;
mod telling;
mod work;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{Balances, World};
pub(super) use apps::KEEPING_ENVS;
pub use events::{DERIVED, Rebuilding, Rebuilt, Told, is_rebuilt, rebuild, state};
pub use instances::spec_hash;
pub(super) use network::{no_ipv4, port_in_use};
pub(super) use nodes::prefix_in_use;
pub use problem::{Problem, RATE_LIMITED, Sort, quota_details};
pub use sessions::STREAM_MS;
pub(super) use sessions::{exec_room, has_passed, instance_stopped};
pub use telling::LIMITS_TOLD;
pub use work::{Asking, Done, Outcome, Step, StepKind, kind_word, row};

use super::words::Violation;

/// Memory of what runs an instance, beside the instance's own.
pub const VMM_OVERHEAD_BYTES: i64 = 64 << 20;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// `user`, `service_principal` or `system`.
    pub kind: &'static str,
    pub id: String,
}

/// Every command there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    CreateOrg,
    DeleteOrg,
    SetTier,
    SetQuota,
    DeleteQuota,
    SetPolicy,
    TellThresholds,
    CreateApp,
    DeleteApp,
    CreateRelease,
    DeleteRelease,
    CreateEnv,
    DeleteEnv,
    SetScale,
    CreateDeploy,
    CreateRollback,
    CreateReplacement,
    SetDeployState,
    CreateRoute,
    UpdateRoute,
    DeleteRoute,
    EnableIpv4,
    DisableIpv4,
    SetSecrets,
    CreateVolume,
    DeleteVolume,
    CreateAttachment,
    DeleteAttachment,
    CreateSnapshot,
    DeleteSnapshot,
    SetSnapshotStatus,
    CreateRestore,
    DeleteRestore,
    SetRestoreStatus,
    GrantExec,
    ConnectExec,
    EndExec,
    OpenLogStream,
    RenewLogStream,
    CloseLogStream,
    AllocateInstance,
    SetInstanceState,
    ReportInstance,
    RemoveInstance,
    RegisterNode,
    SetNodeState,
}

/// The names in a request's path, and its document.
#[derive(Clone, Debug, Default)]
pub struct Given<'a> {
    pub path: BTreeMap<&'static str, String>,
    pub body: &'a Value,
}

impl Given<'_> {
    pub fn name(&self, field: &'static str) -> &str {
        self.path.get(field).map_or("", String::as_str)
    }
}

/// What a command is run with besides what was asked.
pub struct Around<'a> {
    pub world: &'a dyn World,
    pub balances: &'a dyn Balances,
    pub now_ms: i64,
    /// Numbers that nobody else gets.
    pub ids: &'a mut dyn FnMut() -> u128,
    /// At most so many process types may surge; the others drain first, for these reasons.
    pub surges_max: usize,
    pub no_surge_for: Vec<Violation>,
    /// The next entries of the journals of events and of refusals: all that is told of anybody by now is before them.
    pub journals_from: [u64; 2],
}

/// The longest event. What it tells of is an object of the same length, so that this bounds those, too.
pub const EVENT_BYTES_MAX: usize = 192 * 1024;

/// What a command comes to.
pub fn run(op: Op, given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    let outcome = made(op, given, asking)?;
    match outcome.events.iter().map(|told| told.line.len()).max() {
        Some(bytes) if bytes > EVENT_BYTES_MAX => {
            let why = format!("what it changes takes {bytes} bytes to tell, and there may be {EVENT_BYTES_MAX}");
            Err(Problem::invalid("body", why))
        }
        _ => Ok(outcome),
    }
}

fn made(op: Op, given: &Given<'_>, asking: &mut Asking<'_>) -> Result<Outcome, Problem> {
    match op {
        Op::CreateOrg => operator::create_org(given, asking),
        Op::DeleteOrg => operator::delete_org(given, asking),
        Op::SetTier => operator::set_tier(given, asking),
        Op::SetQuota => operator::set_quota(given, asking),
        Op::DeleteQuota => operator::delete_quota(given, asking),
        Op::TellThresholds => telling::tell(given, asking),
        Op::SetPolicy => operator::set_policy(given, asking),
        Op::CreateApp => apps::create_app(given, asking),
        Op::DeleteApp => apps::delete_app(given, asking),
        Op::CreateRelease => apps::create_release(given, asking),
        Op::DeleteRelease => apps::delete_release(given, asking),
        Op::CreateEnv => apps::create_env(given, asking),
        Op::DeleteEnv => apps::delete_env(given, asking),
        Op::SetScale => scale::set_scale(given, asking),
        Op::CreateDeploy => deploys::create(given, asking),
        Op::CreateRollback => deploys::roll_back(given, asking),
        Op::CreateReplacement => deploys::replace(given, asking),
        Op::SetDeployState => deploys::set_state(given, asking),
        Op::CreateRoute => network::create_route(given, asking),
        Op::UpdateRoute => network::update_route(given, asking),
        Op::DeleteRoute => network::delete_route(given, asking),
        Op::EnableIpv4 => network::set_ipv4(given, asking, true),
        Op::DisableIpv4 => network::set_ipv4(given, asking, false),
        Op::SetSecrets => deploys::set_secrets(given, asking),
        Op::CreateVolume => storage::create_volume(given, asking),
        Op::DeleteVolume => storage::delete_volume(given, asking),
        Op::CreateAttachment => storage::create_attachment(given, asking),
        Op::DeleteAttachment => storage::delete_attachment(given, asking),
        Op::CreateSnapshot => storage::create_snapshot(given, asking),
        Op::DeleteSnapshot => storage::delete_snapshot(given, asking),
        Op::SetSnapshotStatus => storage::set_snapshot_status(given, asking),
        Op::CreateRestore => storage::create_restore(given, asking),
        Op::DeleteRestore => storage::delete_restore(given, asking),
        Op::SetRestoreStatus => storage::set_restore_status(given, asking),
        Op::GrantExec => sessions::grant(given, asking),
        Op::ConnectExec => sessions::connect(given, asking),
        Op::EndExec => sessions::end(given, asking),
        Op::OpenLogStream => sessions::open_stream(given, asking),
        Op::RenewLogStream => sessions::renew_stream(given, asking),
        Op::CloseLogStream => sessions::close_stream(given, asking),
        Op::AllocateInstance => instances::allocate(given, asking),
        Op::SetInstanceState => instances::set_state(given, asking),
        Op::ReportInstance => instances::report(given, asking),
        Op::RemoveInstance => instances::remove(given, asking),
        Op::RegisterNode => nodes::register(given, asking),
        Op::SetNodeState => nodes::set_state(given, asking),
    }
}
