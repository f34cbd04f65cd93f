//! What a subject asks for, by the terms of its charges.

use quantity::Amount;

use crate::answer::{Denied, Reason};
use crate::books::Books;
use crate::charge::{CHARGES_MAX, Charge, Line, Lines, is_served, overlaid};
use crate::terms::{Standing, Terms};

/// No two of them name the same account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub enforced: Lines,
    pub adopted: Lines,
    /// With what goes along.
    pub in_line: Lines,
}

impl Wanted {
    fn on(&mut self, terms: Terms) -> &mut Lines {
        match terms {
            Terms::Enforced => &mut self.enforced,
            Terms::Adopted => &mut self.adopted,
            Terms::InLine | Terms::Along => &mut self.in_line,
        }
    }

    /// Adds lines of further accounts.
    fn add(&mut self, terms: Terms, lines: Lines) {
        let all = self.on(terms);
        if all.is_empty() {
            *all = lines;
            return;
        }
        all.extend(lines);
        all.sort_by_key(|line| line.account);
    }

    pub fn is_empty(&self) -> bool {
        self.enforced.is_empty() && self.adopted.is_empty() && self.in_line.is_empty()
    }

    /// What does not wait.
    pub fn at_once(&self) -> Lines {
        overlaid(&self.enforced, &self.adopted)
    }

    pub fn all(&self) -> Lines {
        let mut all = self.at_once();
        all.extend(self.in_line.iter().copied());
        all.sort_by_key(|line| line.account);
        all
    }

    /// Whether these lines, which are settled, are all of it. Nothing is copied where all is on the same terms.
    pub fn is(&self, lines: &[Line]) -> bool {
        let parts = [&self.enforced, &self.adopted, &self.in_line];
        let mut filled = parts.into_iter().filter(|part| !part.is_empty());
        match (filled.next(), filled.next()) {
            (None, _) => lines.is_empty(),
            (Some(only), None) => is_served(lines, only),
            (Some(_), Some(_)) => is_served(lines, &self.all()),
        }
    }
}

impl Wanted {
    /// Charges as lines, by their terms. The hot path allocates nothing, and a call of its own would be felt there.
    #[inline(always)]
    pub fn of(books: &impl Books, charges: &[Charge], standing: &Standing) -> Result<Wanted, Denied> {
        let terms = |charge: &Charge| match (charge.terms, standing) {
            (Terms::InLine, Standing::Stored) | (Terms::Adopted, Standing::Held { .. }) => Terms::Enforced,
            (Terms::Along, Standing::Stored) => Terms::Adopted,
            (terms, _) => terms,
        };
        let first = charges.first().map(terms).unwrap_or_default();
        let mut wanted = Wanted::default();
        check_charges(books, charges, terms)?;
        if charges.iter().all(|charge| terms(charge) == first) {
            let lines = lines(books, charges, first).map_err(|refusals| books.refused_by(refusals))?;
            *wanted.on(first) = lines;
        } else {
            let mut refusals = Vec::new();
            for (terms, charges) in by_terms(charges, terms) {
                match lines(books, &charges, terms) {
                    Ok(lines) => wanted.add(terms, lines),
                    Err(more) => refusals.extend(more),
                }
            }
            if !refusals.is_empty() {
                return Err(books.refused_by(refusals));
            }
        }
        // What may never come, or comes later, makes no room for others before it is there.
        wanted.in_line.retain(|line| !line.amount().is_negative());
        if matches!(standing, Standing::Held { .. }) {
            wanted.enforced.retain(|line| !line.amount().is_negative());
            wanted.in_line.clear();
        }
        Ok(wanted)
    }

    /// All charges as lines that are enforced, whatever their terms.
    pub fn all_enforced(books: &impl Books, charges: &[Charge]) -> Result<Lines, Denied> {
        check_charges(books, charges, |_| Terms::Enforced)?;
        lines(books, charges, Terms::Enforced).map_err(|refusals| books.refused_by(refusals))
    }
}

/// What is wrong with charges one by one, whatever anybody has.
#[inline(always)]
fn check_charges(books: &impl Books, charges: &[Charge], terms: impl Fn(&Charge) -> Terms) -> Result<(), Denied> {
    if let Some(charge) = charges.iter().filter(|charge| terms(charge) != Terms::Adopted).nth(CHARGES_MAX) {
        return Err(books.refused_by([(*charge, Reason::TooManyCharges)]));
    }
    let fault = |charge: &Charge| match books.entry(charge.account) {
        None => Some((*charge, Reason::UnknownAccount)),
        Some(entry) if entry.may_be_charged(charge.amount) => None,
        Some(entry) if entry.discounts && terms(charge) == Terms::Adopted => None,
        Some(entry) if entry.discounts => Some((*charge, Reason::Overflow)),
        Some(_) => Some((*charge, Reason::Negative)),
    };
    match charges.iter().any(|charge| fault(charge).is_some()) {
        true => Err(books.refused_by(charges.iter().filter_map(fault))),
        false => Ok(()),
    }
}

/// Charges on the same terms as lines: by account, each account once, no zero. What is adopted is not refused for being
/// much: its sums end where the number type does.
fn lines(books: &impl Books, charges: &[Charge], terms: Terms) -> Result<Lines, Vec<(Charge, Reason)>> {
    let adopt = terms == Terms::Adopted;
    let mut lines: Lines = charges
        .iter()
        .filter(|charge| !charge.amount.is_zero())
        .map(|charge| Line::new(charge.account, charge.amount, charge.format))
        .collect();
    // What cannot be refused is counted as far as it goes.
    let cut = |lines: &mut Lines| {
        for line in lines.iter_mut().filter(|_| adopt) {
            *line = Line::new(line.account, books.known_entry(line.account).cut(line.amount()), line.format());
        }
    };
    cut(&mut lines);
    let finished = |lines: Lines| match terms {
        Terms::Along => lines.iter().map(|line| Line::along(line.account, line.amount())).collect(),
        _ => lines,
    };
    if lines.is_sorted_by(|left, right| left.account < right.account) {
        return Ok(finished(lines));
    }
    // Stable, so that of several charges on one account the first gives the format.
    lines.sort_by_key(|line| line.account);
    let mut merged = Lines::with_capacity(lines.len());
    let mut too_much = Vec::new();
    for line in lines {
        match merged.last_mut().filter(|last: &&mut Line| last.account == line.account) {
            None => merged.push(line),
            Some(last) => match last.amount().checked_add(line.amount()) {
                Some(amount) => *last = Line::new(last.account, amount, last.format()),
                None if adopt => *last = Line::new(last.account, Amount::from_nanos(i128::MAX), last.format()),
                None => too_much.push((line.charge(), Reason::Overflow)),
            },
        }
    }
    // A discount may have made up for a charge.
    merged.retain(|line| !line.amount().is_zero());
    cut(&mut merged);
    let beyond = |line: &&Line| !books.known_entry(line.account).may_be_charged(line.amount());
    too_much.extend(merged.iter().filter(beyond).map(|line| (line.charge(), Reason::Overflow)));
    if too_much.is_empty() { Ok(finished(merged)) } else { Err(too_much) }
}

/// Charges of several terms, apart. An account is charged on one of them.
fn by_terms(charges: &[Charge], terms: impl Fn(&Charge) -> Terms) -> [(Terms, Vec<Charge>); 4] {
    let mut sorted: Vec<Charge> = charges.iter().map(|charge| charge.on(terms(charge))).collect();
    // Stable: of several charges on one account the first gives the format.
    sorted.sort_by_key(|charge| charge.account);
    let mut apart = [Terms::Enforced, Terms::InLine, Terms::Along, Terms::Adopted].map(|terms| (terms, Vec::new()));
    for same in sorted.chunk_by(|one, next| one.account == next.account) {
        let strictest = same.iter().map(|charge| charge.terms).min().unwrap_or_default();
        let (_, charges) = &mut apart[strictest as usize];
        charges.extend(same.iter().map(|charge| charge.on(strictest)));
    }
    apart
}
