//! Prints what one decision costs, in instructions: `cargo bench -p ledger`. Needs valgrind.

// The project's benchmark program prints the same figures from the same code.
#[path = "../../bench/src/decision.rs"]
mod decision;

use decision::Size;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, claims, accounts] = &arguments[..]
        && word == "work"
    {
        let number = |text: &str| text.parse().map_err(std::io::Error::other);
        decision::work(Size { claims: number(claims)?, accounts: number(accounts)? });
        return Ok(());
    }
    let program = std::env::current_exe()?;
    let count = |size: Size| {
        let arguments = ["work".into(), size.claims.to_string(), size.accounts.to_string()];
        decision::instructions(&program, &arguments)
    };
    // Twice, because the point of the number is that it repeats.
    let (first, again) = (count(decision::SMALL)?, count(decision::SMALL)?);
    if first != again {
        return Err(std::io::Error::other(format!("the count does not repeat: {first}, then {again}")));
    }
    let (large, growth) = decision::figures(count)?;
    println!("figure decision_instructions {large}");
    println!("figure decision_growth {}.{:03}", growth / 1000, growth % 1000);
    Ok(())
}
