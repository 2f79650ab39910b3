// Amounts as the API writes them, as numbers to draw with; what is shown is the text itself.
const FACTORS: Record<string, number> = {
  "": 1, n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** Return an amount as a number; what is missing is 0, what has no limit infinite. */
export function numberOf(text: string | undefined): number {
  if (text === undefined) return 0;
  const match = /^(-?[\d.]+)([A-Za-z]*)$/.exec(text);
  if (!match) return Infinity;
  return Number(match[1]) * (FACTORS[match[2] ?? ""] ?? 1);
}
