//! Seeded choices for generated inputs: the same on every machine.

/// SplitMix64: small and well spread.
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

    pub fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    /// Pieces in a random row: the quickest way to nearly right texts.
    pub fn row(&mut self, pieces: &[&str], length_max: usize) -> String {
        (0..self.below(length_max + 1)).map(|_| self.pick(pieces)).collect()
    }

    pub fn bytes(&mut self, alphabet: &[u8], length_max: usize) -> Vec<u8> {
        (0..self.below(length_max + 1)).map(|_| alphabet[self.below(alphabet.len())]).collect()
    }
}
