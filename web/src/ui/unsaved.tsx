// What the user typed and has not saved. Whatever would drop it asks first: a link, a tab, the button Back, `Log out`,
// and the browser's own question when the page is left.
import { FormDialog, openDialog } from "./dialog";
import { shown } from "./format";

let unsaved = ""; // the name of what is not saved

/** Says what is not saved; "" if all is. */
export function unsavedSet(name: string): void {
  unsaved = name;
}

export function isUnsaved(): boolean {
  return unsaved !== "";
}

/** Goes on at once, or after the user has agreed to lose what is not saved. */
export function leave(next: () => void): void {
  if (!isUnsaved()) return next();
  const submit = async () => {
    unsaved = "";
    next();
  };
  const name = shown(unsaved);
  openDialog((close) => (
    <FormDialog title="Discard your changes?" action="Discard them" danger submit={submit} close={close}>
      <p>Your changes of <code>{name}</code> are not saved. Cancel, and press Save to keep them.</p>
    </FormDialog>
  ));
}

window.addEventListener("beforeunload", (e) => isUnsaved() && e.preventDefault());
