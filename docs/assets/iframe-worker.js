// A page that was opened as a file may start no Worker, and the search is one: it runs in a frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inner = this.frame.contentWindow
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}))
      inner.importScripts = (...addresses) =>
        addresses.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve())
      this.load(address).then(() => {
        for (const data of this.waiting.splice(0)) this.send(data)
        this.waiting = null
      })
    }

    load(address) {
      return new Promise((done, failed) => {
        const script = this.frame.contentDocument.createElement("script")
        script.src = new URL(address, location.href).href
        script.onload = done
        script.onerror = failed
        this.frame.contentDocument.body.append(script)
      })
    }

    send(data) {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data}))
    }

    postMessage(data) {
      this.waiting ? this.waiting.push(data) : this.send(data)
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
