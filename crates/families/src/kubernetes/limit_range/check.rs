//! What a LimitRange says against a pod or a claim, in Kubernetes' words.

use kinds::fields::at;
use kinds::resources::pod::{containers, pod_asks};
use kinds::resources::{Resources, UsageError, quantity_of};
use quantity::{Amount, Quantity};
use serde_json::{Map, Value};

use super::range::{Item, Range, Type};

pub fn pod(range: &Range, pod: &Value) -> Result<Vec<String>, UsageError> {
    let mut wrong = Vec::new();
    for item in &range.items {
        match item.of {
            Type::Container => {
                for container in containers(pod) {
                    let list = |side| at(container, &["resources", side]).and_then(Value::as_object);
                    let stated = Stated { requests: List::Json(list("requests")), limits: List::Json(list("limits")) };
                    stated.against(item, "Container", &mut wrong)?;
                }
            }
            Type::Pod => {
                let (requests, limits) = pod_asks(pod)?;
                let stated = Stated { requests: List::Sum(&requests), limits: List::Sum(&limits) };
                stated.against(item, "Pod", &mut wrong)?;
            }
            Type::VolumeClaim => {}
        }
    }
    Ok(wrong)
}

/// Only what a claim requests is looked at.
pub fn volume_claim(range: &Range, claim: &Value) -> Result<Vec<String>, UsageError> {
    const TYPE: &str = "PersistentVolumeClaim";
    let mut wrong = Vec::new();
    let requests = at(claim, &["spec", "resources", "requests"]).and_then(Value::as_object);
    let stated = Stated { requests: List::Json(requests), limits: List::Json(None) };
    for item in range.items.iter().filter(|item| item.of == Type::VolumeClaim) {
        for (name, least) in &item.min {
            wrong.extend(stated.below(name, least, TYPE)?);
        }
        for (name, most) in &item.max {
            let opening = format!("maximum {name} usage per {TYPE} is {most}");
            match stated.requests.get(name)? {
                None => wrong.push(format!("{opening}.  No request is specified")),
                Some(request) if request > *most => wrong.push(format!("{opening}, but request is {request}")),
                Some(_) => {}
            }
        }
    }
    Ok(wrong)
}

/// Requests or limits of whatever is checked.
enum List<'a> {
    Json(Option<&'a Map<String, Value>>),
    Sum(&'a Resources),
}

impl List<'_> {
    fn get(&self, name: &str) -> Result<Option<Quantity>, UsageError> {
        match self {
            List::Json(list) => list.and_then(|list| list.get(name)).map(|value| quantity_of(name, value)).transpose(),
            List::Sum(sums) => Ok(sums.get(name).map(|sum| sum.to_quantity())),
        }
    }
}

struct Stated<'a> {
    requests: List<'a>,
    limits: List<'a>,
}

impl Stated<'_> {
    fn against(&self, item: &Item, kind: &str, wrong: &mut Vec<String>) -> Result<(), UsageError> {
        for (name, least) in &item.min {
            wrong.extend(self.below(name, least, kind)?);
        }
        for (name, most) in &item.max {
            wrong.extend(self.above(name, most, kind)?);
        }
        for (name, ratio) in &item.ratio {
            wrong.extend(self.apart(name, ratio, kind)?);
        }
        Ok(())
    }

    fn below(&self, name: &str, least: &Quantity, kind: &str) -> Result<Option<String>, UsageError> {
        let opening = || format!("minimum {name} usage per {kind} is {least}");
        let Some(request) = self.requests.get(name)? else {
            return Ok(Some(format!("{}.  No request is specified", opening())));
        };
        if request < *least {
            return Ok(Some(format!("{}, but request is {request}", opening())));
        }
        let limit = self.limits.get(name)?.filter(|limit| limit < least);
        Ok(limit.map(|limit| format!("{}, but limit is {limit}", opening())))
    }

    fn above(&self, name: &str, most: &Quantity, kind: &str) -> Result<Option<String>, UsageError> {
        let opening = || format!("maximum {name} usage per {kind} is {most}");
        let Some(limit) = self.limits.get(name)? else {
            return Ok(Some(format!("{}.  No limit is specified", opening())));
        };
        if limit > *most {
            return Ok(Some(format!("{}, but limit is {limit}", opening())));
        }
        let request = self.requests.get(name)?.filter(|request| request > most);
        Ok(request.map(|request| format!("{}, but request is {request}", opening())))
    }

    fn apart(&self, name: &str, most: &Quantity, kind: &str) -> Result<Option<String>, UsageError> {
        let opening = || format!("{name} max limit to request ratio per {kind} is {most}");
        let positive = |one: Option<Quantity>| one.map(|one| one.amount()).filter(|one| *one > Amount::ZERO);
        let Some(request) = positive(self.requests.get(name)?) else {
            return Ok(Some(format!("{}, but no request is specified or request is 0", opening())));
        };
        let Some(limit) = positive(self.limits.get(name)?) else {
            return Ok(Some(format!("{}, but no limit is specified or limit is 0", opening())));
        };
        let over = Ratio { of: limit, to: request }.exceeds(most.amount());
        Ok(over.then(|| format!("{}, but provided ratio is {}", opening(), Ratio { of: limit, to: request })))
    }
}

/// One positive amount divided by another; compared exactly, shown with six places.
pub struct Ratio {
    pub of: Amount,
    pub to: Amount,
}

impl Ratio {
    pub fn exceeds(&self, most: Amount) -> bool {
        most.is_negative() || self.compared_to(most).is_gt()
    }

    pub fn is_below(&self, least: Amount) -> bool {
        !least.is_negative() && self.compared_to(least).is_lt()
    }

    /// `of / to` against `other / 1e9`, multiplied out so that nothing is rounded.
    fn compared_to(&self, other: Amount) -> std::cmp::Ordering {
        let magnitude = |amount: Amount| amount.nanos().unsigned_abs();
        let one = magnitude(Amount::from_units(1));
        wide_product(magnitude(self.of), one).cmp(&wide_product(magnitude(other), magnitude(self.to)))
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (of, to) = (self.of.nanos().unsigned_abs(), self.to.nanos().unsigned_abs());
        if to == 0 {
            return f.write_str("+Inf");
        }
        const PLACES: u128 = 1_000_000;
        let (mut whole, rest) = (of / to, of % to);
        // The product only overflows when `to` is so large that a millionth of it loses nothing that could be seen.
        let mut millionths = match rest.checked_mul(PLACES) {
            Some(product) => (product + to / 2) / to,
            None => rest / (to / PLACES),
        };
        if millionths >= PLACES {
            whole += 1;
            millionths = 0;
        }
        write!(f, "{whole}.{millionths:06}")
    }
}

/// The full product of two 128-bit numbers: high half, low half.
fn wide_product(a: u128, b: u128) -> (u128, u128) {
    const HALF: u32 = 64;
    const LOW: u128 = u64::MAX as u128;
    let (a_high, a_low, b_high, b_low) = (a >> HALF, a & LOW, b >> HALF, b & LOW);
    let low = a_low * b_low;
    let middle = a_high * b_low + (low >> HALF);
    let middle_low = a_low * b_high + (middle & LOW);
    let high = a_high * b_high + (middle >> HALF) + (middle_low >> HALF);
    (high, (middle_low << HALF) | (low & LOW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_exact() {
        assert_eq!(wide_product(u128::MAX, u128::MAX), (u128::MAX - 1, 1));
        assert_eq!(wide_product(1 << 100, 1 << 100), (1 << 72, 0));
        assert_eq!(wide_product(7, 6), (0, 42));
    }

    #[test]
    fn ratios_are_shown_with_six_places() {
        for (of, to, shown) in
            [(4, 1, "4.000000"), (2, 3, "0.666667"), (1, 3, "0.333333"), (999_999_999, 1_000_000_000, "1.000000")]
        {
            assert_eq!(Ratio { of: Amount::from_units(of), to: Amount::from_units(to) }.to_string(), shown);
        }
    }
}
