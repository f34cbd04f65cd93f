//! Who writes: the field manager of a request, for `metadata.managedFields`.

use kinds::apply::{Writer, manager_of_user_agent};

use super::Call;
use super::options::WriteOptions;

/// The manager of a request that names none and comes with no user agent.
const UNNAMED: &str = "unknown";

/// What a [`Writer`] borrows.
pub(super) struct Author {
    pub manager: String,
    pub api_version: String,
    pub now: String,
}

impl Author {
    pub fn of(call: &Call, options: &WriteOptions) -> Author {
        let manager = match options.field_manager.as_str() {
            "" => manager_of_user_agent(call.user_agent()),
            named => named.to_owned(),
        };
        let manager = if manager.is_empty() { UNNAMED.to_owned() } else { manager };
        Author { manager, api_version: call.served.api_version(), now: kinds::time::text(call.now_ms) }
    }

    /// The writer of the object itself, through `subresource` (empty for the main resource).
    pub fn writer<'a>(&'a self, call: &'a Call, subresource: &'a str) -> Writer<'a> {
        let reset: &[&str] = match subresource {
            "" if call.served.has_status() => &["status"],
            // A custom resource's status endpoint writes nothing else; a built-in kind's lets labels through.
            "status" if call.served.custom.is_some() => &["spec", "metadata"],
            "status" => &["spec"],
            _ => &[],
        };
        Writer {
            catalogue: &call.served.schema.catalogue,
            ty: call.served.schema.ty,
            api_version: &self.api_version,
            kind: &call.served.kind,
            manager: &self.manager,
            subresource,
            now: &self.now,
            reset,
        }
    }
}
