// What a user may do to what waits, where the server has it on and the user has the right: it is tried
// first, and done only once somebody has confirmed what would change.
import { useEffect, useState } from "preact/hooks";
import { BASE } from "./live";
import { readAnswer } from "./plain";

interface Says { ask: string; would: string; done: string }
interface Offer { actions: string[]; csrf: string }
interface Outcome { changes: boolean; resourceVersion: string }

const SAYS: Record<string, Says> = {
  hold: { ask: "hold it back", would: "It would not start until it is released.", done: "It is held back." },
  release: { ask: "let it go", would: "It would start when it is its turn.", done: "It is released." },
  retry: { ask: "try it now", would: "It would be tried at once, in its turn.", done: "It is tried again." },
  priority: { ask: "let others go first", would: "Others would have their turns before it, down to this priority.", done: "Its turn has changed." },
};
const JOB_SAYS: typeof SAYS = {
  hold: { ask: "suspend its Job", would: "Its pods would go, and come again once it is resumed.", done: "Its Job is suspended." },
  release: { ask: "resume its Job", would: "Its pods would come again, and wait for their turn.", done: "Its Job is resumed." },
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

/** Offer what can be done to a unit, and to the Job that it is of. */
export function Actions(props: { namespace: string; kind: string; name: string; isHeld: boolean; job: string | undefined }) {
  const { namespace, kind, name, isHeld, job } = props;
  const actions = [isHeld ? "release" : "hold", ...(isHeld ? [] : ["retry"]), "priority"];
  return (
    <div role="group" aria-label="Actions">
      <Offered says={SAYS} actions={actions} path={pathOf(namespace, kind, name)} />
      {job && <Offered says={JOB_SAYS} actions={["hold", "release"]} path={pathOf(namespace, "job", job)} />}
    </div>
  );
}

function pathOf(...parts: string[]): string {
  return `${BASE}/actions/namespaces/${parts.map(encodeURIComponent).join("/")}`;
}

function Offered(props: { says: typeof SAYS; actions: string[]; path: string }) {
  const { path } = props;
  const [offer, setOffer] = useState<Offer | null>(null);
  useEffect(() => {
    let isLate = false;
    setOffer(null);
    findOffer(path).then((found) => { if (!isLate) setOffer(found); }, () => undefined);
    return () => { isLate = true; };
  }, [path]);
  if (!offer) return null;
  const offered = props.actions.filter((action) => offer.actions.includes(action));
  return <>{offered.map((action) => <Action key={`${path}/${action}`} says={props.says[action] as Says} action={action} path={path} csrf={offer.csrf} />)}</>;
}

function Action(props: { says: Says; action: string; path: string; csrf: string }) {
  const { says, action } = props;
  const [tried, setTried] = useState<Outcome | null>(null);
  const [said, setSaid] = useState("");
  const [priority, setPriority] = useState("0");
  const more = action === "priority" ? { priority: priority === "" ? null : Number(priority) } : {};
  const run = (body: object, then: (outcome: Outcome) => void) => {
    setSaid("");
    send(`${props.path}/${action}`, props.csrf, { ...body, ...more }).then(then, (error: Error) => { setTried(null); setSaid(error.message); });
  };
  return (
    <p class="line">
      {action === "priority" && !tried && (
        <input type="number" aria-label="priority of its turn, at most; empty: that of its pods" value={priority} onInput={(event) => setPriority(event.currentTarget.value)} />
      )}
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
