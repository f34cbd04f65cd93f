//! How a grant refuses: which resource of whom, with the numbers, and what can be done.

use quantity::Quantity;

use super::table::UNCOVERED;
use crate::{Denial, DenialLine, DenialReason};

pub fn words(denial: &Denial) -> String {
    if let Some(message) = &denial.message {
        return message.clone();
    }
    let entity = super::entity::Entity::of_object_name(&denial.name);
    let whose = entity.map_or_else(|| denial.name.to_string(), |entity| entity.to_string());
    let mut parts: Vec<String> = denial.lines.iter().map(line).collect();
    if parts.is_empty() {
        parts.push("nothing is left".into());
    }
    let never = denial.reason == DenialReason::NeverFits;
    let hint = if never { "it needs a larger grant" } else { "release something or ask for a larger grant" };
    format!("quota of {whose} exceeded: {}; {hint}", parts.join("; "))
}

fn line(line: &DenialLine) -> String {
    if &*line.account == UNCOVERED {
        return "a resource that is claimed is not defined, or no grant and no default limit covers it".into();
    }
    let show = |amount| Quantity::new(amount, line.used_format).canonical().to_string();
    let is_closed = line.limit.is_zero() && !["", "0"].contains(&&*line.limit_text);
    if is_closed {
        // What is claimed, and what the meter says beside it, may be the whole of it; or there is no answer to go by.
        let requested = Quantity::new(line.requested, line.requested_format).canonical();
        return format!(
            "{}: requested {requested}, and of its limit {} nothing can be had by what its meter says",
            line.account, line.limit_text
        );
    }
    let limit = if line.limit_text.is_empty() { show(line.limit) } else { line.limit_text.to_string() };
    let requested = Quantity::new(line.requested, line.requested_format).canonical();
    format!("{}: requested {requested}, used {}, limit {limit}", line.account, show(line.used))
}
