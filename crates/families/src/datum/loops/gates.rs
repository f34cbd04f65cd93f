//! Who may be asked at this moment: a service that does not answer is left alone for a while, and so is a meter that it knows nothing
//! of, which keeps nobody from the service's others. What failed is tried by one question at a time, however many wait.

use std::collections::HashMap;
use std::time::Instant;

use metering::{Breaker, Failure, Meter, Question, Reading};

/// Questions under way at once at one service.
const ASKED_MAX: usize = 16;

#[derive(Default)]
struct Gate {
    breaker: Breaker,
    asked: usize,
}

impl Gate {
    fn lets(&self, now: Instant) -> bool {
        self.breaker.lets(now) && self.asked < if self.breaker.is_well() { ASKED_MAX } else { 1 }
    }
}

/// By service, and by service and meter.
#[derive(Default)]
pub struct Gates(HashMap<(String, String), Gate>);

fn keys(meter: &Meter, question: &Question) -> [(String, String); 2] {
    [(meter.endpoint.clone(), String::new()), (meter.endpoint.clone(), question.meter.clone())]
}

impl Gates {
    /// Whether a question may be asked now; it is then under way until it [leaves](Gates::leave).
    pub fn enter(&mut self, meter: &Meter, question: &Question, now: Instant) -> bool {
        let keys = keys(meter, question);
        if !keys.iter().all(|key| self.0.get(key).is_none_or(|gate| gate.lets(now))) {
            return false;
        }
        keys.into_iter().for_each(|key| self.0.entry(key).or_default().asked += 1);
        true
    }

    pub fn leave(&mut self, meter: &Meter, question: &Question, answer: &Result<Reading, Failure>, now: Instant) {
        let [service, one] = keys(meter, question).map(|key| {
            let gate = self.0.entry(key.clone()).or_default();
            gate.asked = gate.asked.saturating_sub(1);
            key
        });
        let mut note = |key: &(String, String), is_well: bool| {
            let breaker = &mut self.0.entry(key.clone()).or_default().breaker;
            if is_well { breaker.answered() } else { breaker.failed(now) }
        };
        note(&service, !matches!(answer, Err(Failure::Unavailable(_))));
        note(&one, !matches!(answer, Err(Failure::Wrong(_))));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metering::Service;

    use super::*;

    fn meter(endpoint: &str) -> Meter {
        let (service, endpoint) = (Service::Prometheus, endpoint.to_owned());
        Meter { service, endpoint, secret: None, timeout: Duration::from_secs(1), empty_is_zero: false }
    }

    fn question(meter: &str) -> Question {
        let (meter, entity_label, entity) = (meter.to_owned(), "project".into(), "a".into());
        Question { meter, entity_label, entity, conditions: Vec::new(), at_ms: 0 }
    }

    /// How many of a hundred questions are let in at once.
    fn let_in(gates: &mut Gates, meter: &Meter, question: &Question, now: Instant) -> usize {
        (0..100).take_while(|_| gates.enter(meter, question, now)).count()
    }

    #[test]
    fn what_fails_is_tried_by_one_at_a_time_and_others_go_on() {
        let (mut gates, mut now) = (Gates::default(), Instant::now());
        let (down, up, cores, wrong) = (meter("http://down"), meter("http://up"), question("cores"), question("wrong"));
        let (silent, odd) = (Err(Failure::Unavailable("silent".into())), Err(Failure::Wrong("404".into())));
        let fine = Ok(Reading { nanos: 0, at_ms: 0 });
        assert_eq!(let_in(&mut gates, &down, &cores, now), ASKED_MAX);
        for _ in 0..ASKED_MAX {
            gates.leave(&down, &cores, &silent, now);
        }
        assert_eq!(let_in(&mut gates, &down, &cores, now), 0);
        // In five seconds hardly anybody asks who is down, whichever of its meters is wanted.
        let mut asked = 0;
        for _ in 0..20 {
            now += Duration::from_millis(250);
            for question in [&cores, &wrong] {
                for _ in 0..let_in(&mut gates, &down, question, now) {
                    asked += 1;
                    gates.leave(&down, question, &silent, now);
                }
            }
        }
        assert!((2..=5).contains(&asked), "{asked}");
        // A meter that nobody knows is left alone, and not the service.
        for _ in 0..3 {
            assert!(gates.enter(&up, &wrong, now));
            gates.leave(&up, &wrong, &odd, now);
        }
        assert!(!gates.enter(&up, &wrong, now));
        assert_eq!(let_in(&mut gates, &up, &cores, now), ASKED_MAX);
        // Once it answers all are let in again.
        now += Duration::from_secs(2);
        assert_eq!(let_in(&mut gates, &down, &cores, now), 1);
        gates.leave(&down, &cores, &fine, now);
        assert_eq!(let_in(&mut gates, &down, &cores, now), ASKED_MAX);
    }
}
