//! A meter that lags, fails and jumps, while claims come and go and the server restarts: whatever is granted is within the limit by the
//! rule for lag, `U = max(L, M − R + G)`, worked out here from the story alone.

use super::*;

const LIMIT: i64 = 20;
const LAG_MS: i64 = 10_000;
const MAX_AGE_MS: i64 = 30_000;

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        i64::try_from((self.0 >> 16) % bound).unwrap()
    }
}

/// One claim as it was lived through.
struct Lived {
    name: String,
    amount: i64,
    /// None while it waits.
    granted_ms: Option<i64>,
    /// In which step.
    released: Option<usize>,
}

/// What the meter said, of which moment, and when that was heard.
#[derive(Clone, Copy)]
struct Said {
    value: i64,
    taken_ms: i64,
    heard_ms: i64,
    heard: usize,
}

struct Story {
    desk: Desk,
    dice: Dice,
    lived: Vec<Lived>,
    said: Option<Said>,
    steps: usize,
    granted: usize,
    waited: usize,
}

impl Story {
    fn begin(seed: u64) -> Story {
        let mut desk = Desk::new();
        desk.now_ms = 1_000_000;
        desk.namespace("proj-abc", &[]);
        let mut cpu = definition(CPU, "cores", None);
        cpu["spec"]["usageSource"] = json!({
            "type": "Prometheus", "endpoint": "http://127.0.0.1:1", "meter": "cores", "lag": "10s", "maxAge": "30s",
        });
        desk.apply(&definitions(), "", "cpu", cpu).unwrap();
        let all = limit(CPU, &[(&LIMIT.to_string(), json!({}))]);
        desk.apply(&grants(), "proj-abc", "g", grant("Project", "proj-abc", &[all])).unwrap();
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Story { desk, dice, lived: Vec::new(), said: None, steps: 0, granted: 0, waited: 0 }
    }

    fn step(&mut self) {
        self.steps += 1;
        match self.dice.below(10) {
            0..=3 => {
                let (name, amount) = (format!("c{}", self.lived.len()), 1 + self.dice.below(4));
                self.desk.ask(&name, &[(CPU, &amount.to_string())], json!({}));
                self.lived.push(Lived { name, amount, granted_ms: None, released: None });
            }
            4 => {
                let live: Vec<usize> = (0..self.lived.len()).filter(|at| self.lived[*at].released.is_none()).collect();
                if !live.is_empty() {
                    let at = live[usize::try_from(self.dice.below(live.len() as u64)).unwrap()];
                    self.desk.delete(&claims(), "proj-abc", &self.lived[at].name).unwrap();
                    self.lived[at].released = Some(self.steps);
                }
            }
            5 | 6 => self.desk.now_ms += self.dice.below(9_000),
            7 => {
                // It answers late, with anything: all it could have seen, less, or far more.
                let taken_ms = self.desk.now_ms - self.dice.below(8_000);
                let value = self.dice.below(2 * u64::try_from(LIMIT).unwrap());
                let nanos = (i128::from(value) * 1_000_000_000).to_string();
                self.tell(json!({"account": CPU, "valueNanos": nanos, "takenAtMs": taken_ms}));
                self.said = Some(Said { value, taken_ms, heard_ms: self.desk.now_ms, heard: self.steps });
            }
            8 => {
                self.tell(json!({"account": CPU, "error": "status 503"}));
                self.said = None;
            }
            _ => self.desk.restart(),
        }
        self.judge();
    }

    fn tell(&mut self, sample: Value) {
        let mut object = self.desk.projected(&effective(), "", "project-proj-abc");
        object["spec"]["usage"] = json!([sample]);
        self.desk.apply(&effective(), "", "project-proj-abc", object).unwrap();
    }

    /// Used, by the rule: never less than is claimed, nor than the meter says without what was let go of since and with what it
    /// cannot show yet. Times of grants are known to the second.
    fn used(&self, said: Said) -> i64 {
        let shown_ms = said.taken_ms - LAG_MS;
        let is_shown = |one: &Lived| one.granted_ms.is_some_and(|at| at / 1000 * 1000 + 999 <= shown_ms);
        let sum = |counts: &dyn Fn(&Lived) -> bool| -> i64 {
            self.lived.iter().filter(|one| counts(one)).map(|one| one.amount).sum()
        };
        let claimed = sum(&|one| one.granted_ms.is_some() && one.released.is_none());
        let granted_since = sum(&|one| one.granted_ms.is_some() && one.released.is_none() && !is_shown(one));
        let released_since = sum(&|one| is_shown(one) && one.released.is_some_and(|at| at > said.heard));
        claimed.max(said.value - released_since + granted_since)
    }

    fn judge(&mut self) {
        let now_ms = self.desk.now_ms;
        let valid = self.said.filter(|said| now_ms <= said.heard_ms + MAX_AGE_MS);
        let mut news = Vec::new();
        for at in 0..self.lived.len() {
            let one = &self.lived[at];
            if one.released.is_some() {
                continue;
            }
            let phase = self.desk.phase("proj-abc", &one.name);
            match (phase.as_str(), one.granted_ms) {
                ("Granted/QuotaAvailable", None) => news.push(at),
                ("Granted/QuotaAvailable", Some(_)) => {}
                (other, Some(_)) => panic!("{} was granted and is {other}", one.name),
                (_, None) => self.waited += 1,
            }
        }
        for at in &news {
            self.lived[*at].granted_ms = Some(now_ms);
        }
        self.granted += news.len();
        if news.is_empty() {
            return;
        }
        let said = valid.expect("nothing is granted without an answer that counts");
        assert!(self.used(said) <= LIMIT, "{} of {LIMIT}", self.used(said));
    }
}

#[test]
fn whatever_the_meter_does_nothing_is_granted_beyond_the_limit() {
    let (mut granted, mut waited) = (0, 0);
    for seed in 1..=30 {
        let mut story = Story::begin(seed);
        (0..120).for_each(|_| story.step());
        granted += story.granted;
        waited += story.waited;
    }
    assert!(granted > 100 && waited > 1000, "{granted} {waited}: the storm has to do both");
}

/// The desk is audited with every write: what nobody measures any more is not kept.
#[test]
fn samples_go_with_the_meter_that_gave_them() {
    let mut story = Story::begin(1);
    story.tell(json!({"account": CPU, "valueNanos": "1000000000", "takenAtMs": story.desk.now_ms}));
    let samples = |desk: &Desk| desk.projected(&effective(), "", "project-proj-abc")["spec"]["usage"].clone();
    assert_eq!(samples(&story.desk)[0]["account"], CPU);
    story.desk.apply(&definitions(), "", "cpu", definition(CPU, "cores", None)).unwrap();
    assert_eq!(samples(&story.desk), json!([]));
    assert_eq!(story.desk.ask("c", &[(CPU, "20")], json!({})), "Granted/QuotaAvailable");
    // What a meter says that was asked before the definition named another is not kept either, whenever it comes.
    let mut story = Story::begin(1);
    story.tell(json!({"account": CPU, "of": "another", "valueNanos": "0", "takenAtMs": story.desk.now_ms}));
    assert_eq!(samples(&story.desk), json!([]));
    assert_eq!(story.desk.ask("c", &[(CPU, "1")], json!({})), "Pending/PendingQuotaCheck");
    story.tell(json!({"account": CPU, "of": "another", "error": "status 503"}));
    assert_eq!(story.desk.phase("proj-abc", "c"), "Pending/PendingQuotaCheck");
}
