//! Seeded texts that are quantities, nearly quantities, or noise.

/// SplitMix64: small, well spread, and the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("fits")
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn quantity(&mut self) -> String {
        let mut text = String::from(["", "", "", "+", "-"][self.below(5)]);
        for _ in 0..self.below(8).saturating_sub(4) {
            text.push('0');
        }
        self.digits(&mut text);
        if self.one_in(3) {
            text.push('.');
            self.digits(&mut text);
        }
        match self.below(6) {
            0 => text.push_str(&format!("{}{}", ["e", "E", "e+", "E-"][self.below(4)], self.below(36))),
            1 => text.push_str(["", "K", "i", "e", "ki", "Mi1", "mi", "E3i", "kk"][self.below(9)]),
            _ => text.push_str(SUFFIXES[self.below(SUFFIXES.len())]),
        }
        if self.one_in(12) && text.is_ascii() {
            let noise = ["+", "-", ".", "e", " ", "x", "i", "0", "9", "é", "|", "_"][self.below(12)];
            text.insert_str(self.below(text.len() + 1), noise);
        }
        text
    }

    /// Few digits mostly, sometimes many, often ending in zeros: that is where the spelling rules turn.
    fn digits(&mut self, text: &mut String) {
        let count = if self.one_in(4) { self.below(24) } else { self.below(5) };
        let zeros = if self.one_in(3) { self.below(5) } else { 0 };
        for _ in 0..count {
            text.push(char::from(b'0' + u8::try_from(self.below(10)).expect("a digit")));
        }
        text.push_str(&"0".repeat(zeros));
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        const ALPHABET: &[u8] = b"0123456789..++--eEinumkKMGTP,, \xffx";
        (0..self.below(24)).map(|_| ALPHABET[self.below(ALPHABET.len())]).collect()
    }
}

const SUFFIXES: [&str; 17] = ["", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
