// What would change: room for pods of a shape, and edits that are tried on a copy. Writes nothing.
import { useEffect, useState } from "preact/hooks";
import type { Envelope, ShapeRoom, UnitOutcome, UnitRef, WhatIfAnswer } from "../answers";
import { FORMS, makeBody, MOST_MANIFEST, pack, readEdits, tellEdit, writeEdits, type Edit } from "../edits";
import { asOf, BASE, post, Refusal, useFollowed } from "../live";
import { ClassBadge, Count, Filter, Gaps, Link, Missing, NodeName, QuotaName, Same, Things } from "../parts";
import { place, setParams, to, toUnit } from "../route";
import { tellOffer } from "./job";

interface Asked<T> {
  answer: Envelope<T> | null;
  problem: string;
}

/** Ask again whenever the question changes, or the cluster was read again. */
function useAsked<T>(path: string, body: string): Asked<T> {
  const [asked, setAsked] = useState<Asked<T>>({ answer: null, problem: "" });
  const state = asOf.value?.state ?? 0;
  useEffect(() => {
    if (!body) {
      setAsked({ answer: null, problem: "" });
      return undefined;
    }
    let isLate = false;
    post<T>(path, body).then(
      (answer) => { if (!isLate) setAsked({ answer, problem: "" }); },
      (error: unknown) => {
        if (!isLate) setAsked({ answer: null, problem: error instanceof Refusal ? error.message : "the server does not answer" });
      },
    );
    return () => { isLate = true; };
  }, [path, body, state]);
  return asked;
}

export function WhatIfView() {
  // Something is followed, so that it is known when the cluster was read again.
  useFollowed({ topic: "overview", path: "overview" });
  return (
    <>
      <p class="lead">All of it is planned on a copy; nothing is written.</p>
      <RoomSection />
      <EditsSection />
    </>
  );
}

function RoomSection() {
  const read = (name: string) => place.value.params.get(name) ?? "";
  const question = { shape: read("shape"), namespace: read("ns"), quota: read("quota") };
  const body = question.shape ? JSON.stringify(question) : "";
  const { answer, problem } = useAsked<ShapeRoom>("room", body);
  const value = answer?.value;
  return (
    <section aria-labelledby="room">
      <h2 id="room">Where is room?</h2>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Filter label="Pods x GPUs, such as 4x8" value={question.shape} isSearch onChange={(shape) => setParams({ shape })} />
        <Filter label="Namespace" value={question.namespace} onChange={(ns) => setParams({ ns })} />
        <Filter label="Quota" value={question.quota} onChange={(quota) => setParams({ quota })} />
      </form>
      {problem && <Missing message={problem} />}
      <Gaps gaps={answer?.gaps} />
      {value && (
        <div class="card" aria-live="polite">
          <p class="sentence">
            {value.fits ? `There is room for ${value.shape}.` : `There is no room for ${value.shape} now.`}{" "}
            <small><Count of={value.fit} /> such pods fit{value.inQuota !== null && `, ${value.inQuota} within the quota`}</small>
          </p>
          {value.reason && <p><ClassBadge name={value.reason.class} /> {value.reason.message}</p>}
          {value.place.length > 0 && (
            <p>The planner would take {value.place.map((each, at) => (
              <span key={each.node}>{at > 0 && ", "}<Link href={to("node", each.node)}>{each.node}</Link>{each.pods > 1 && ` (${each.pods} pods)`}</span>
            ))}.</p>
          )}
          {value.nearest.length > 0 && (
            <table class="small">
              <caption>Nodes that come nearest to taking one of the pods</caption>
              <thead><tr><th scope="col">Node</th><th scope="col">What it lacks</th></tr></thead>
              <tbody>
                {value.nearest.map((each) => (
                  <tr key={each.node}><td><NodeName name={each.node} /></td><td>{tellOffer(each) || "–"}</td></tr>
                ))}
              </tbody>
            </table>
          )}
          {value.domains.length > 0 && (
            <table class="small">
              <caption>Domains into which all of it fits, the narrowest first</caption>
              <thead><tr><th scope="col">Domain</th><th scope="col">Layer</th><th scope="col" class="number">Room for more</th></tr></thead>
              <tbody>
                {value.domains.map((each) => (
                  <tr key={`${each.topology}/${each.domain}`}><td>{each.domain}</td><td>{each.layer}</td><td class="number"><Count of={each.spare} /></td></tr>
                ))}
              </tbody>
            </table>
          )}
          <ul class="plain">
            {value.largestGang.map((each) => <li key={each.layer}>Largest gang in {each.layer === "cluster" ? "the cluster" : `one ${each.layer}`}: <Things of={each.pods} what="pod" /></li>)}
            {value.afterNodes.map((each) => <li key={each.like}>It would fit with {each.count} more {each.count === 1 ? "node" : "nodes"} like <Link href={to("node", each.like)}>{each.like}</Link></li>)}
          </ul>
        </div>
      )}
      {question.shape && <Same command={`koord room ${question.shape}`} url={`${BASE}/room`} />}
    </section>
  );
}

function EditsSection() {
  const edits = readEdits(place.value.params.get("edits") ?? "");
  const { answer, problem } = useAsked<WhatIfAnswer>("whatifs", edits.length ? makeBody(edits) : "");
  const put = (changed: Edit[]) => setParams({ edits: writeEdits(changed) });
  return (
    <section aria-labelledby="edits">
      <h2 id="edits">What if?</h2>
      <EditForm onAdd={(edit) => put([...edits, edit])} />
      {edits.length > 0 && (
        <ol class="chips">
          {edits.map((edit, at) => (
            <li key={at} class="badge">
              {tellEdit(edit)}{" "}
              <button type="button" class="remove" aria-label={`Take back: ${tellEdit(edit)}`}
                onClick={() => put(edits.filter((_, other) => other !== at))}>×</button>
            </li>
          ))}
        </ol>
      )}
      {problem && <Missing message={problem} />}
      <Gaps gaps={answer?.gaps} />
      {answer && <Outcome value={answer.value} />}
    </section>
  );
}

function EditForm(props: { onAdd: (edit: Edit) => void }) {
  const [name, setName] = useState(FORMS[1]!.name);
  const [words, setWords] = useState<string[]>([]);
  const [problem, setProblem] = useState("");
  const form = FORMS.find((each) => each.name === name) ?? FORMS[0]!;
  const given = form.fields.map((_, at) => (words[at] ?? "").trim());
  const add = (event: Event) => {
    event.preventDefault();
    if (form.isText) {
      const word = pack(given[0] ?? "");
      setProblem(word === null ? `It has more than ${MOST_MANIFEST} bytes: koord what-if -f FILE tries it.` : "");
      if (word) props.onAdd({ name, words: [word] });
      return;
    }
    if (given.some((word) => !word || /[\s|]/.test(word))) return;
    props.onAdd({ name, words: given });
    setWords([]);
  };
  const write = (at: number, text: string) => {
    setWords(form.fields.map((_, other) => (other === at ? text : words[other] ?? "")));
  };
  return (
    <form class="filters" onSubmit={add}>
      <label class="filter"><span>Edit</span>
        <select value={name} onChange={(event) => { setName(event.currentTarget.value); setWords([]); }}>
          {FORMS.map((each) => <option key={each.name} value={each.name}>{each.title}</option>)}
        </select>
      </label>
      {form.fields.map((field, at) => (
        <label key={`${name}${field}`} class="filter"><span>{field}</span>
          {form.isText
            ? <textarea rows={8} cols={60} value={words[at] ?? ""} required spellcheck={false} onInput={(event) => write(at, event.currentTarget.value)} />
            : <input type="text" value={words[at] ?? ""} required pattern="[^\s\|]+" spellcheck={false} onInput={(event) => write(at, event.currentTarget.value)} />}
        </label>
      ))}
      <button type="submit">Try</button>
      {problem && <Missing message={problem} />}
    </form>
  );
}

function Outcome({ value }: { value: WhatIfAnswer }) {
  return (
    <div class="card" aria-live="polite">
      {value.units.length === 0 && <p class="sentence">No pod and no gang would start, wait or end because of it.</p>}
      {value.units.length > 0 && (
        <table class="small">
          <caption>What would not be as it is</caption>
          <thead><tr><th scope="col">Unit</th><th scope="col">Now</th><th scope="col">Then</th></tr></thead>
          <tbody>
            {value.units.slice(0, MOST_UNITS).map((change) => (
              <tr key={nameOf(change.ref)}>
                <td><Link href={toUnit(change.ref.kind, nameOf(change.ref))}>{nameOf(change.ref)}</Link></td>
                <td>{tell(change.before)}</td>
                <td title={change.after.message ?? ""}>{tell(change.after)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {value.units.length > MOST_UNITS && <p class="empty">and <Count of={value.units.length - MOST_UNITS} /> more</p>}
      {value.evicted.map((evicted) => <p key={evicted.ref}>For {nameOf(evicted.by)} the operators would preempt {evicted.ref} ({evicted.pods} pods).</p>)}
      {value.shares.length > 0 && (
        <table class="small">
          <caption>Shares of quotas</caption>
          <thead><tr><th scope="col">Quota</th><th scope="col">Resource</th><th scope="col" class="number">Now</th><th scope="col" class="number">Then</th></tr></thead>
          <tbody>
            {value.shares.slice(0, MOST_UNITS).map((share) => (
              <tr key={`${share.quota}/${share.resource}`}>
                <td><QuotaName name={share.quota} /></td><td>{share.resource}</td>
                <td class="number">{share.before}</td><td class="number">{share.after}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p class="empty"><Count of={value.order.length} /> would wait then.</p>
    </div>
  );
}

const MOST_UNITS = 100;

function nameOf(ref: UnitRef): string {
  return `${ref.namespace}/${ref.name}`;
}

const STANDINGS: Record<string, string> = { Placeable: "starts", Waiting: "waits", Bound: "has its nodes" };

function tell(outcome: UnitOutcome): string {
  if (!outcome.standing) return "does not exist";
  const standing = STANDINGS[outcome.standing] ?? outcome.standing;
  return outcome.reason ? `${standing}: ${outcome.reason}` : standing;
}
