// Holding a job back and letting it go, where the server has it on and the user has the right: it is
// tried first, and done only once somebody has confirmed what would change.
import { useEffect, useState } from "preact/hooks";
import { BASE } from "./live";
import { readAnswer } from "./plain";

interface Offer { actions: string[]; csrf: string }
interface Outcome { changes: boolean; resourceVersion: string }

const SAYS: Record<string, { ask: string; would: string; done: string }> = {
  hold: { ask: "hold it back", would: "It would not start until it is released.", done: "It is held back." },
  release: { ask: "let it go", would: "It would start when it is its turn.", done: "It is released." },
};

/** Ask what the user may do here; where nothing is on that is not asked. */
async function findOffer(path: string): Promise<Offer | null> {
  const session = readAnswer<{ actions?: string[] }>(await (await fetch("/session")).text());
  if (!session.actions?.length) return null;
  const answer = await fetch(path);
  return answer.ok ? readAnswer<Offer>(await answer.text()) : null;
}

async function send(path: string, csrf: string, body: object): Promise<Outcome> {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Koord-Csrf": csrf },
    body: JSON.stringify(body),
  });
  const said = readAnswer<Outcome & { message?: string }>(await answer.text());
  if (!answer.ok) throw new Error(said.message ?? answer.statusText);
  return said;
}

export function Actions(props: { namespace: string; kind: string; name: string; isHeld: boolean }) {
  const path = `${BASE}/actions/namespaces/${[props.namespace, props.kind, props.name].map(encodeURIComponent).join("/")}`;
  const [offer, setOffer] = useState<Offer | null>(null);
  const [tried, setTried] = useState<Outcome | null>(null);
  const [said, setSaid] = useState("");
  const action = props.isHeld ? "release" : "hold";
  useEffect(() => {
    let isLate = false;
    setOffer(null);
    findOffer(path).then((found) => { if (!isLate) setOffer(found); }, () => undefined);
    return () => { isLate = true; };
  }, [path]);
  useEffect(() => setTried(null), [path, action]);
  if (!offer?.actions.includes(action)) return null;
  const says = SAYS[action] as { ask: string; would: string; done: string };
  const run = (body: object, then: (outcome: Outcome) => void) => {
    setSaid("");
    send(`${path}/${action}`, offer.csrf, body).then(then, (error: Error) => { setTried(null); setSaid(error.message); });
  };
  return (
    <p class="line" role="group" aria-label="Actions">
      {!tried && <button type="button" onClick={() => run({ dryRun: true }, (outcome) => (outcome.changes ? setTried(outcome) : setSaid(says.done)))}>{says.ask}…</button>}
      {tried && (
        <>
          <span>{says.would}</span>
          <button type="button" onClick={() => run({ resourceVersion: tried.resourceVersion }, () => { setTried(null); setSaid(says.done); })}>yes, {says.ask}</button>
          <button type="button" onClick={() => setTried(null)}>no</button>
        </>
      )}
      <span role="status">{said}</span>
    </p>
  );
}
